// Writes the program of a step from a recipe: the model writes forward, the core adds backward, update and
// step, strategies rewrite it phase by phase.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "placement/moves.hpp"
#include "plan/pipeline/lay_out_pipeline.hpp"
#include "program/recompute.hpp"
#include "program/step_program.hpp"
#include "prun/strategy.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/parameter_groups.hpp"

namespace prun {

// Returns the token that ends a document, if the recipe keeps documents apart.
std::optional<std::int64_t> document_end_of(const Recipe& recipe);
// Returns what the note of a schedule plugin says of its order.
ScheduleTraits schedule_traits(const PluginNote& note);

// Returns the number formats that a recipe requests.
Precision precision_of(const Recipe& recipe);

// Holds what strategies leave to the planner.
struct PlannedChoice {
  RecomputeChoice recompute;
  WayToFit way_to_fit;
};

struct WrittenProgram {
  std::unique_ptr<Program> program;
  std::optional<PipelineLayout> pipeline;
};

// Writes programs. It can write the same program several times, with another choice of what strategies leave
// open. Its arguments must outlive it, and it must outlive the programs: they point to the optimizer's ops.
class ProgramWriter {
 public:
  ProgramWriter(const Recipe& recipe, PluginHost& plugins, const BatchArithmetic& batch,
                std::shared_ptr<OpRegistry> registry, Purpose purpose)
      : recipe_(recipe),
        plugins_(plugins),
        batch_(batch),
        registry_(std::move(registry)),
        purpose_(purpose) {}

  // Throws an Error for what a plugin refuses, and for rewritings that do not fit together.
  WrittenProgram write(const PlannedChoice& choice);
  // Returns the order of the calls of a program's pipeline in a step of so many microbatches.
  PipelineOrder order_of(const Program& program, std::int64_t microbatches) const;

 private:
  using Pass = void (ProgramWriter::*)();
  using Work = std::variant<Phase, Pass>;
  // How a program is written: passes of the core, and phases in which strategies work.
  static const Work works[];

  // Returns false if the mesh must have an axis as two before the program is written.
  bool write_over_mesh();
  bool must_factor_axis() const;
  void write_model();
  void settle_parameters();
  void write_step();
  void lay_out();
  void pack();
  void move_values();
  std::int64_t loss_groups() const;
  Delay delay() const;
  void check_parts_of_tensors() const;
  void apply_strategies(Phase phase);
  double norm_limit() const;
  MoveRules move_rules() const;
  GradientParts gradient_parts() const;
  bool updates_are_free() const;
  void check_optimizer_state() const;
  bool evaluates_state() const;
  void gather_ahead();
  void leave_training_out();

  const Recipe& recipe_;
  PluginHost& plugins_;
  const BatchArithmetic& batch_;
  std::shared_ptr<OpRegistry> registry_;
  const Purpose purpose_;
  PlannedChoice choice_;
  std::optional<FactoredAxis> factored_;
  std::optional<ParameterGroups> groups_;
  std::map<std::string, std::shared_ptr<StrategyInterface>> strategies_;  // by the section's path
  Optimizers optimizers_;
  std::unique_ptr<Program> program_;
  std::optional<PipelineLayout> pipeline_;
};

}  // namespace prun
