#include "train/assemble/program_writer.hpp"

#include <limits>
#include <optional>

#include "base/narrow.hpp"
#include "placement/check_edits.hpp"
#include "placement/pack.hpp"
#include "placement/placement.hpp"
#include "placement/split_ops.hpp"
#include "plan/pipeline/lay_out_pipeline.hpp"
#include "plan/work.hpp"
#include "plugin/traits.hpp"
#include "program/delays.hpp"
#include "program/optimizers.hpp"
#include "program/passes.hpp"
#include "program/step.hpp"
#include "program/text_steps.hpp"
#include "program/update.hpp"
#include "prun/strategy.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/assemble/model_program.hpp"
#include "train/assemble/parameter_groups.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/recipe_checks.hpp"
#include "train/assemble/tiers.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ optimizers of

// Makes the optimizers of a recipe: that of [optimizer], and those of its groups.

NamedOptimizer optimizer_of(PluginHost& plugins, const RecipeSection& section) {
  const PluginNote& note = plugins.note("optimizer", section.plugin());
  const std::string_view whole = trait_of(note, "whole");
  const UpdateUnit unit = whole == "matrices"                      ? UpdateUnit::matrix
                          : whole == "tensors"                     ? UpdateUnit::tensor
                          : trait_of(note, "elementwise") == "yes" ? UpdateUnit::element
                                                                   : UpdateUnit::unknown;
  return {section.plugin(), unit, plugins.create<OptimizerInterface>("optimizer", section),
          trait_of(note, "sums") == "update"};
}

// Returns them in the order in which parameters number them (parameter_groups.hpp).
Optimizers optimizers_of(const Recipe& recipe, PluginHost& plugins) {
  Optimizers optimizers = {optimizer_of(plugins, recipe.section("optimizer"))};
  for (const RecipeSection& group : groups_with_optimizers(recipe))
    optimizers.push_back(optimizer_of(plugins, group));
  return optimizers;
}

// ------------------------------------------------------------ delays of

// Finds how old the weights are that each layer trains with, by the recipe's schedule and stages.

void check_told(const std::vector<std::int64_t>& told, std::size_t instances, bool in_stages, Delay delay) {
  if (delay != Delay::stages || in_stages)
    throw_error(ErrorCode::bad_input, "cannot use optimizer.delays: ",
                in_stages ? "the delays of several stages follow from their schedule"
                          : "no strategy of the recipe asks for a schedule with delay=stages",
                "; leave it out");
  if (told.size() != instances)
    throw_error(ErrorCode::bad_input, "optimizer.delays lists ", told.size(), " layers, the model has ",
                instances, ", embedding and head counted; list one number for each");
}

// Refuses what updates cannot do before other stages have measured theirs.
void check_updates_at_once(const std::string& schedule, const Recipe& recipe, const BatchArithmetic& batch) {
  const std::string why =
      detail::concat(" with schedule '", schedule, "', which updates a stage after each microbatch");
  if (recipe.number("optimizer.clip") > 0)
    throw_error(ErrorCode::unsupported, "cannot clip gradients", why,
                ", before their global norm is known; set "
                "optimizer.clip = 0, or take another schedule");
  if (skips_non_finite(recipe))
    throw_error(ErrorCode::unsupported, "cannot skip steps that are not finite", why,
                ", before that is known; set "
                "run.on_nonfinite = \"stop\", or take another schedule");
  if (batch.accumulate != 1)
    throw_error(ErrorCode::bad_input, "cannot take steps of ", batch.accumulate, " microbatches", why,
                "; make batch.global ", batch.micro * batch.ranks, ", or take another schedule");
}

// Returns the delays; `pipeline` has the stages; without it, one rank has them all, and optimizer.delays
// gives the delays. Throws if the recipe needs something that is impossible with such weights.
Delays delays_of(const Program& program, const std::optional<PipelineLayout>& pipeline, Delay delay,
                 const Recipe& recipe, const BatchArithmetic& batch) {
  const std::size_t instances = chain_of(program).size();
  const std::vector<std::int64_t>& told = recipe.integers("optimizer.delays");
  if (!told.empty()) check_told(told, instances, pipeline.has_value(), delay);
  if (delay == Delay::nothing) return {};
  if (delay == Delay::one) return {std::vector<std::int32_t>(instances, 1), false};
  check_updates_at_once(program.requests().pipeline->schedule, recipe, batch);
  Delays delays{std::vector<std::int32_t>(instances, 0), true};
  for (std::size_t i = 0; i < instances; ++i)
    if (pipeline)
      delays.of[i] =
          narrow<std::int32_t>(pipeline->stages.size()) - 1 - pipeline->stage_of(narrow<std::int32_t>(i));
    else if (!told.empty())
      delays.of[i] = narrow<std::int32_t>(told[i]);
  return delays;
}

// ------------------------------------------------------------ pack requested

// Packs into flat buckets what strategies request to be kept in parts, and what ranks sum in codes.

void check_sums_in_update(PluginHost& plugins, const Optimizers& optimizers) {
  for (const NamedOptimizer& optimizer : optimizers)
    if (optimizer.sums_in_update) return;
  std::string known;
  for (const PluginNote& note : plugins.notes_with("optimizer", "sums", "update"))
    known += (known.empty() ? "" : ", ") + note.name;
  throw_error(ErrorCode::unsupported, "cannot reduce in 1 bit (precision.reduce) with optimizer '",
              optimizers.front().name,
              "': it needs reduced gradients; take an optimizer that reduces its update instead (", known,
              "), or another type, such as \"bf16\"");
}

// Checks codes: only what ranks keep in parts travels in codes.
void check_codes(const Program& program, const Recipe& recipe, PluginHost& plugins,
                 const Optimizers& optimizers) {
  const Precision& precision = program.precision();
  const std::optional<ShardRequest>& shards = program.requests().shards;
  if (precision.gather_bits > 0 && !(shards && shards->parameters))
    throw_error(ErrorCode::unsupported, "cannot gather in ", recipe.text("precision.gather"),
                " (precision.gather): no strategy shards parameters; add strategy zero with "
                "stage = 3, or leave the key out");
  if (precision.reduce_bits == 1 && shards)
    throw_error(ErrorCode::unsupported,
                "cannot reduce in 1 bit (precision.reduce): every rank needs all of the optimizer's state "
                "and its local gradient, "
                "and a strategy shards them; leave out strategy zero (stage = 0), or choose "
                "\"int8\" or \"int4\"");
  if (precision.reduce_bits == 1) check_sums_in_update(plugins, optimizers);
  if (precision.reduce_bits > 1 && !shards)
    throw_error(ErrorCode::unsupported, "cannot reduce in ", recipe.text("precision.reduce"),
                " (precision.reduce): no strategy shards optimizer state; add strategy zero "
                "with stage = 1, 2 or 3, or choose another type, such as \"bf16\"");
}

// Returns the strategy whose request this is.
std::optional<RecipeSection> keeper_of(const Program& program, const Recipe& recipe, PluginHost& plugins,
                                       const ShardRequest& parts) {
  std::vector<std::string> names;
  for (const AxisId axis : parts.axes)
    if (const std::string name = program.mesh().name(axis); name.find('.') == std::string::npos)
      names.push_back(name);
  for (const RecipeSection& section : recipe.strategies())
    if (works_in(Phase::state, plugins.note("strategy", section.plugin())) && axes_named(section) == names)
      return section;
  return {};
}

// Throws if the recipe's formats, its optimizers or its stages do not go with that.
void pack_requested(Program& program, const Recipe& recipe, PluginHost& plugins, const Optimizers& optimizers,
                    const std::optional<PipelineLayout>& pipeline, std::int64_t accumulate, Purpose purpose) {
  if (purpose == Purpose::training) check_codes(program, recipe, plugins, optimizers);
  if (purpose == Purpose::training && program.precision().reduce_bits == 1)
    pack_summands(program, optimizers, accumulate);
  if (pipeline) check_parts(program, *pipeline);
  const std::optional<ShardRequest>& shards = program.requests().shards;
  if (!shards) return;
  if (const std::optional<PeriodicRequest>& periodic = program.requests().periodic)
    throw_error(ErrorCode::unsupported, "cannot combine [", periodic->asked_by,
                "], whose ops run in one step of ", periodic->every, ", with [", shards->asked_by,
                "], which shards the state that they read; leave one of them out");
  for (const NamedOptimizer& optimizer : optimizers)
    if (optimizer.unit == UpdateUnit::unknown)
      throw_error(ErrorCode::unsupported, "cannot shard the state of optimizer plugin '", optimizer.name,
                  "': it has neither trait elementwise=yes nor whole=tensors; leave out the strategy that "
                  "shards it, or choose an optimizer with one of them");
  const std::optional<RecipeSection> keeper = keeper_of(program, recipe, plugins, *shards);
  if (keeper) check_parts_axes(recipe, *keeper);
  pack_state(program, optimizers, *shards);
}

}  // namespace

ScheduleTraits schedule_traits(const PluginNote& note) {
  const std::string_view delay = trait_of(note, "delay");
  return {trait_of(note, "backward") == "split", delay.empty()       ? Delay::nothing
                                                 : delay == "stages" ? Delay::stages
                                                                     : Delay::one};
}

namespace {

ScheduleAnswer ask_schedule(const Recipe& recipe, PluginHost& plugins, const std::string& name,
                            const ScheduleShape& shape) {
  const ScheduleTraits traits = schedule_traits(plugins.note("schedule", name));
  const auto schedule = plugins.create<ScheduleInterface>("schedule", name, recipe);
  return {read_schedule(*schedule, shape, traits, name), traits.split};
}

// Returns the model's options that are whole numbers.
std::vector<RecipeSize> sizes_in(const Recipe& recipe) {
  std::vector<RecipeSize> sizes;
  const RecipeSection model = recipe.section("model");
  for (const auto& entry : model.entries())
    if (entry.value && std::holds_alternative<std::int64_t>(*entry.value))
      sizes.push_back({entry.path, std::get<std::int64_t>(*entry.value)});
  return sizes;
}

}  // namespace

std::optional<std::int64_t> document_end_of(const Recipe& recipe) {
  if (!recipe.flag("data.mask_documents")) return {};
  return recipe.integer("data.end_of_text");
}

WrittenProgram ProgramWriter::write(const PlannedChoice& choice) {
  check_makes_text(recipe_, plugins_, purpose_);
  factored_.reset();
  choice_ = choice;
  while (!write_over_mesh()) factored_ = program_->requests().factored;
  if (purpose_ == Purpose::training) {
    check_updates(*program_);
    check_settled(*program_);
    delay_weights(*program_, delays_of(*program_, pipeline_, delay(), recipe_, batch_));
  } else {
    leave_training_out();
  }
  verify(*program_);
  return {std::move(program_), std::move(pipeline_)};
}

const ProgramWriter::Work ProgramWriter::works[] = {
    &ProgramWriter::write_model, Phase::model,       &ProgramWriter::settle_parameters,
    &ProgramWriter::write_step,  Phase::shard,       Phase::partition,
    &ProgramWriter::lay_out,     Phase::placed,      Phase::state,
    &ProgramWriter::pack,        Phase::collectives, Phase::memory,
    &ProgramWriter::move_values, Phase::order,
};

bool ProgramWriter::write_over_mesh() {
  strategies_.clear();
  for (const Work& work : works) {
    if (const Pass* const pass = std::get_if<Pass>(&work))
      (this->**pass)();
    else
      apply_strategies(std::get<Phase>(work));
    if (must_factor_axis()) return false;
  }
  return true;
}

bool ProgramWriter::must_factor_axis() const {
  const std::optional<FactoredAxis>& asked = program_->requests().factored;
  if (asked && factored_)
    throw_error(ErrorCode::unsupported, "cannot have more ranks than groups of heads on both axes '",
                factored_->axis, "' and '", asked->axis, "'; let one of them divide the groups");
  return asked.has_value();
}

// Gives parameters what the recipe's groups say, those of strategies too; forward is written by now.
void ProgramWriter::settle_parameters() {
  program_->settle_shapes();
  groups_->apply(*program_);
  groups_->check_used();
  if (factored_ && factored_->weights) {
    if (recipe_.text("precision.moments") == "8bit")
      throw_error(ErrorCode::unsupported, "cannot keep moments in 8 bits with more ranks on axis '",
                  factored_->axis,
                  "' than groups of heads: a block has elements of several ranks; take precision.moments = "
                  "\"fp32\", or fewer ranks there");
    take_packed_apart(*program_, factored_->within);
  }
  if (!recipe_.text("model.init").empty()) leave_to_base(*program_);
  verify(*program_);
}

void ProgramWriter::pack() {
  pack_requested(*program_, recipe_, plugins_, optimizers_, pipeline_, batch_.accumulate, purpose_);
}

void ProgramWriter::move_values() { derive_moves(*program_, move_rules()); }

// Writes the model as its plugin knows it: for one rank that has all.
void ProgramWriter::write_model() {
  pipeline_.reset();
  const ModelContext context{batch_.micro * batch_.ranks, batch_.seq};
  program_ = std::make_unique<Program>(registry_, precision_of(recipe_), context);
  const Mesh mesh = mesh_of(recipe_);
  program_->set_mesh(
      factored_ ? mesh.factored(factored_->axis, factored_->parts, factored_->within, !factored_->weights)
                : mesh);
  program_->set_recipe_sizes(sizes_in(recipe_));
  const Precision& precision = program_->precision();
  program_->set_step_context({purpose_ == Purpose::training, makes_text(purpose_), batch_.accumulate,
                              precision.compute, precision.master, precision.moments, precision.gradient,
                              precision.reduce, precision.gather_bits, precision.reduce_bits,
                              precision.gather_fp8, norm_limit()});
  program_->requests().planned_recompute = choice_.recompute;
  program_->requests().way_to_fit = choice_.way_to_fit;
  program_->requests().known_tiers = known_tiers(recipe_, plugins_);
  const auto model = plugins_.create<ModelInterface>("model", recipe_.section("model"));
  recipe::in_section(recipe_.section("model"),
                     [&] { raise(model->build(context, &program_api(), program_.get())); });
  program_->set_foreign_weights(foreign_weights_of(*model));
  if (program_->segment_count() < 2) throw_error(ErrorCode::bad_input, "the model has no segment");
  if (const std::optional<std::int64_t> end = document_end_of(recipe_)) keep_documents_apart(*program_, *end);
  groups_.emplace(recipe_);
  groups_->apply(*program_);
}

// Writes backward, updates, and what frames them.
void ProgramWriter::write_step() {
  add_backward(*program_);
  optimizers_ = optimizers_of(recipe_, plugins_);
  check_parts_of_tensors();
  if (loss_groups() > 0) declare_loss_groups(*program_, loss_groups());
  add_update(*program_, optimizers_);
  add_step(*program_, {recipe_.number("optimizer.clip"), scales_loss(recipe_)});
  check_scaled_updates(*program_);
}

std::int64_t ProgramWriter::loss_groups() const {
  return purpose_ == Purpose::training ? LossGroups::of(recipe_, plugins_).count() : 0;
}

// Refuses parts for an optimizer of whole tensors: it would take parts of tensors for tensors.
void ProgramWriter::check_parts_of_tensors() const {
  for (const Id id : program_->parameters()) {
    const Value& parameter = program_->value(id);
    if (!parameter.part || parameter.frozen) continue;
    const NamedOptimizer& optimizer = optimizers_.at(parameter.optimizer);
    if (optimizer.unit != UpdateUnit::element)
      throw_error(ErrorCode::unsupported, "cannot update '", parameter.part->tensor,
                  "' by optimizer plugin '", optimizer.name, "': axis '", factored_->axis,
                  "' has more ranks than groups of heads and splits it, and the optimizer is not "
                  "elementwise; let the axis divide the groups, or choose another optimizer for it");
  }
}

PipelineOrder ProgramWriter::order_of(const Program& program, std::int64_t microbatches) const {
  const PipelineRequest& asked = program.requests().pipeline.value();
  return ask_schedule(recipe_, plugins_, asked.schedule, pipeline_shape(program, asked, microbatches)).order;
}

// Returns the delay. A single rank has it as well: all layouts are compared with it.
Delay ProgramWriter::delay() const {
  const std::optional<PipelineRequest>& asked = program_->requests().pipeline;
  return asked ? schedule_traits(plugins_.note("schedule", asked->schedule)).delay : Delay::nothing;
}

// Lays the program out over stages and the mesh.
void ProgramWriter::lay_out() {
  const auto ask = [&](const std::string& name, const ScheduleShape& shape) {
    return ask_schedule(recipe_, plugins_, name, shape);
  };
  pipeline_ = lay_out_pipeline(*program_, ask, optimizers_, batch_.accumulate);
  check_order(batch_, pipeline_.has_value());
  if (purpose_ == Purpose::evaluation || loss_groups() > 0) take_heads_apart(*program_);
  if (loss_groups() > 0) sum_loss_by_group(*program_);
  if (makes_text(purpose_)) add_logits(*program_);
  if (purpose_ == Purpose::generation) step_by_positions(*program_);
  check_sequence_axes(*program_);
  check_optimizer_state();
  place_on_mesh(*program_);
  check_rows(*program_, batch_);
  if (pipeline_) sum_over_stages(*program_, pipeline_->axis);
}

// Refuses a state of weights that vary: each rank would have a different one.
void ProgramWriter::check_optimizer_state() const {
  const std::vector<AxisId>& varied = program_->requests().varied;
  const std::optional<StateRequest>& state = program_->requests().optimizer_state;
  if (varied.empty() || !state) return;
  throw_error(ErrorCode::unsupported, "cannot keep state '", state->name, "' of [", state->asked_by,
              "]: a strategy lets weights vary along axis '", program_->mesh().name(varied.front()),
              "'; leave one of them out");
}

bool ProgramWriter::evaluates_state() const {
  const std::optional<StateRequest>& state = program_->requests().optimizer_state;
  return purpose_ == Purpose::evaluation && state && state->evaluated;
}

// Gathers ahead. Parameters that ranks hold whole and update in parts are gathered behind an update. Where a
// state takes the places of parts between two programs, they must be gathered before their use.
void ProgramWriter::gather_ahead() {
  for (const Bucket& bucket : program_->buckets()) {
    if (gathers_parameters(*program_, bucket)) continue;
    const std::vector<Id> updates = program_->segment(bucket.segment).ops(FunctionKind::update);
    bool gathered = false;
    for (const Id id : updates) {
      const std::vector<Id> operands = program_->op(id).operands;
      if (operands != std::vector<Id>{bucket.own_parameters, bucket.all_parameters}) continue;
      program_->add_copy(id, FunctionKind::gather, operands, none);
      gathered = true;
    }
    if (!gathered && program_->mesh().extent(bucket.axis) > 1)
      throw_error(ErrorCode::unsupported, "cannot evaluate state '",
                  program_->requests().optimizer_state->name, "' in the place of weights: the shards of '",
                  program_->value(bucket.parameters.front()).name,
                  "' are gathered by more than one op; evaluate the weights alone");
  }
}

void ProgramWriter::leave_training_out() {
  if (evaluates_state()) gather_ahead();
  verify(*program_);
  const StagedValues staged = staged_values(*program_);
  std::vector<Id> results = {staged.loss_sum, staged.all_counted};
  if (makes_text(purpose_)) results = {staged.logits};
  keep_forward(*program_, results);
  if (staged.position != none) keep_what_is_left(*program_);
}

bool ProgramWriter::updates_are_free() const {
  return recipe_.number("optimizer.clip") == 0 && !skips_non_finite(recipe_) && !scales_loss(recipe_);
}

// Returns StepContext::norm_limit. A scale of the loss is a factor that gradients always have.
double ProgramWriter::norm_limit() const {
  if (updates_are_free() || scales_loss(recipe_)) return 0;
  const double clip = recipe_.number("optimizer.clip");
  return clip > 0 ? clip : std::numeric_limits<double>::infinity();
}

MoveRules ProgramWriter::move_rules() const {
  const bool keep = purpose_ != Purpose::training || recipe_.flag("run.keep_gradients");
  return {gradient_parts(), updates_are_free(), keep, batch_.interleave > 1};
}

GradientParts ProgramWriter::gradient_parts() const {
  if (purpose_ != Purpose::training || batch_.accumulate == 1) return GradientParts::one;
  return batch_.vertical ? GradientParts::in_a_row : GradientParts::far_apart;
}

void ProgramWriter::apply_strategies(Phase phase) {
  const Recipe recipe = purpose_ == Purpose::training ? recipe_ : with_untrained_settings(recipe_, plugins_);
  for (const RecipeSection& section : recipe.strategies()) {
    const PluginNote& note = plugins_.note("strategy", section.plugin());
    if (!works_in(phase, note)) continue;
    if (trait_of(note, "only") == "training" && purpose_ != Purpose::training) continue;
    program_->set_writer(section.path());
    std::shared_ptr<StrategyInterface>& strategy = strategies_[section.path()];
    if (!strategy) strategy = plugins_.create<StrategyInterface>("strategy", section);
    recipe::in_section(section, [&] {
      const std::optional<EditCheck> edits =
          phase >= Phase::placed ? std::make_optional<EditCheck>(*program_) : std::nullopt;
      raise(strategy->apply(phase, &program_api(), program_.get()));
      if (edits) edits->run(phase == Phase::collectives);
    });
  }
  program_->set_writer("");
  if (phase == Phase::collectives) check_collectives(*program_);
}

namespace {

DType dtype_named(const std::string& name) {
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16})
    if (name == name_of(t)) return t;
  throw_error(ErrorCode::internal, "no number format '", name, "'");
}

// Returns the bits of the codes that numbers travel in; 0 if they travel uncoded.
std::int64_t bits_of(const std::string& format) {
  return format == "int8" || format == "fp8" ? 8 : format == "int4" ? 4 : format == "1bit" ? 1 : 0;
}

}  // namespace

Precision precision_of(const Recipe& recipe) {
  const DType state = dtype_named(recipe.text("precision.state"));
  const auto kept = [&](const char* key, DType otherwise) {
    const std::string& name = recipe.text(key);
    return name == "state" || bits_of(name) > 0 ? otherwise
           : name == "split" || name == "8bit"  ? DType::f32
                                                : dtype_named(name);
  };
  Precision precision;
  precision.compute = dtype_named(recipe.text("precision.compute"));
  precision.master = kept("precision.master", state);
  precision.moments = kept("precision.moments", state);
  precision.gradient = kept("precision.gradient", state);
  precision.reduce = kept("precision.reduce", precision.gradient);
  precision.reduce_bits = bits_of(recipe.text("precision.reduce"));
  precision.gather_bits = bits_of(recipe.text("precision.gather"));
  precision.gather_fp8 = recipe.text("precision.gather") == "fp8";
  precision.split = recipe.text("precision.master") == "split";
  precision.eight_bits = recipe.text("precision.moments") == "8bit";
  return precision;
}

}  // namespace prun
