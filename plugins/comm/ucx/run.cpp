// Counts down what each step waits for.
#include "run.hpp"

namespace prun::ucx {

Run::Run(const Plan& plan) : plan_(&plan), steps_(plan.steps.size()) {}

void Run::begin(const CommOp& op, std::uint64_t tag, std::uint32_t number) {
  op_ = op;
  tag_ = tag;
  number_ = number;
  buffers_ = {static_cast<std::byte*>(const_cast<void*>(op.in)), static_cast<std::byte*>(op.out), nullptr};
  left_ = steps_.size();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].run = this;
    steps_[i].step = static_cast<StepId>(i);
    steps_[i].waits_for = plan_->steps[i].waits_for;
  }
}

void Run::add_first(std::vector<RunningStep*>& ready) {
  for (RunningStep& step : steps_)
    if (step.waits_for == 0) ready.push_back(&step);
}

void Run::finish(const RunningStep& step, std::vector<RunningStep*>& ready) {
  --left_;
  const Step& planned = plan_->steps[static_cast<std::size_t>(step.step)];
  for (std::uint32_t i = planned.next_begin; i < planned.next_end; ++i) {
    RunningStep& after = steps_[static_cast<std::size_t>(plan_->next[i])];
    if (--after.waits_for == 0) ready.push_back(&after);
  }
}

}  // namespace prun::ucx
