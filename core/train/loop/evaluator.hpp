// Runs a program that trains nothing, over batches of its own, for their loss.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "execute/executor.hpp"
#include "program/step.hpp"
#include "train/assemble/assembly.hpp"
#include "train/loop/samples.hpp"

namespace prun {

struct Evaluated {
  double loss = 0;  // mean over the targets that count
  std::int64_t targets = 0;
};

// Holds all results of an evaluation.
struct Evaluation {
  Evaluated whole;
  // With a state in place of the weights, and of each set, by name; empty if nobody asks.
  std::vector<std::pair<std::string, Evaluated>> sets;
};

// Holds what such a program runs with.
struct ForwardParts {
  const Assembly& assembly;
  const Program& program;
  const Plan& plan;
  const PlanMemory* base_program;  // memory that the plan is over; null: it has its own
  std::vector<QueueComm> comms;    // communicators by queue
  std::vector<Probe*> probes;
};
ExecutorOptions options_of(const ForwardParts& parts);
// Stages what belongs to no batch: which rank this is, and a seed that nothing draws from.
void stage_constants(const Assembly& assembly, const PlanMemory& memory, const StagedValues& staged,
                     std::int64_t step);

class Evaluator {
 public:
  Evaluator(const ForwardParts& parts, Samples samples);

  const PlanMemory& memory() const { return executor_.memory(); }
  const Samples& samples() const { return all_.samples; }
  // Evaluates `batches` batches from the first sample on, or all samples if there are fewer. Every rank calls
  // it, while no other program of the memory runs.
  Evaluated run(std::int64_t batches) { return run(all_, batches); }
  // Does the same for each set by itself.
  std::vector<std::pair<std::string, Evaluated>> run_by_set(std::int64_t batches);

 private:
  // Holds samples, their number, and their reader.
  struct Source {
    Source(Samples of, const Assembly& assembly, const Program& program);
    const Samples samples;
    const std::int64_t count;
    BatchReader reader;
  };

  Evaluated run(Source& source, std::int64_t batches);
  void start(Source& source, std::int64_t batch);
  void finish(double& loss, double& counted);
  double read_scalar(Id id) const;

  const Assembly& assembly_;
  const Program& program_;
  Executor executor_;
  const StagedValues staged_;
  Source all_;
  std::deque<Source> sets_;                  // made when they are first needed
  std::int64_t started_ = 0, finished_ = 0;  // batches of this process, which alternate the staging sides
};

}  // namespace prun
