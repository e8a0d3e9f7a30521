// Implements an observer whose log cannot be written after some steps.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Failing final : public Observer {
 public:
  explicit Failing(const Options& options) : after_(options.integer("after")) {}

  void step(const StepInfo& info) override {
    if (info.step == after_) throw_error(ErrorCode::storage, "the log is full");
    PRUN_CHECK(info.step < after_, "one that has failed is told of step ", info.step);
  }

 private:
  std::int64_t after_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(observer, prun::Failing, "failing", "0.1.0", "Fails after some steps", "",
            "after | int | 5 | 1.. | How many\n");
