#include "search/unmeasured.hpp"

#include <set>

#include "estimate/table_prices.hpp"

namespace prun {
namespace {

class PlanReader {
 public:
  PlanReader(const Program& program, const Plan& plan, const Numbered<std::string>& devices,
             const CostTable& costs)
      : program_(program), plan_(plan), devices_(devices), costs_(costs), prices_(costs, devices) {}

  Unmeasured read() {
    for (const Call& call : plan_.calls) {
      const PlannedFunction& function = plan_.functions[call.function];
      const Piece& piece = function.pieces[call.piece];
      for (std::int32_t i = piece.first; i < piece.last; ++i)
        if (const PlannedStep& step = function.steps[i]; step.kernel) add(step);
    }
    return {seconds_, 0, static_cast<std::int64_t>(shapes_.size())};
  }

 private:
  // Adds a step; each step of a function is looked up once, however often it is called.
  void add(const PlannedStep& step) {
    const auto [known, is_new] = by_step_.try_emplace(&step, 0.0);
    if (is_new) {
      const Op& op = program_.op(step.op);
      const ExactKey key{devices_.at(step.device), shape_key(*op.def, program_.local_shape(op))};
      if (costs_.exact.count(key) == 0) {
        known->second = prices_.kernel(program_, step);
        shapes_.insert(key);
      }
    }
    seconds_ += known->second;
  }

  const Program& program_;
  const Plan& plan_;
  const Numbered<std::string>& devices_;
  const CostTable& costs_;
  TablePrices prices_;
  double seconds_ = 0;
  std::set<ExactKey> shapes_;
  std::map<const PlannedStep*, double> by_step_;
};

}  // namespace

Unmeasured unmeasured_of(const Assembly& assembly, const CostTable& costs) {
  Numbered<std::string> devices;
  for (const DeviceInfo& device : assembly.device_infos()) devices.emplace_back(device.name.view());
  Unmeasured most;
  const std::vector<int> stages =
      assembly.pipeline() ? assembly.mesh().group(0, assembly.pipeline()->axis) : std::vector<int>{0};
  for (const int rank : stages) {
    Unmeasured one = PlanReader(assembly.program(), assembly.plan_of(rank), devices, costs).read();
    one.rank = rank;
    if (one.seconds > most.seconds) most = one;
  }
  return most;
}

}  // namespace prun
