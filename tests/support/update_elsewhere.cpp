// Makes updates run on a device of any plugin, with their state in any space: it is listed behind the
// strategy `offload`, which copies what else they need, or alone, where nothing is copied.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class UpdateElsewhere final : public Strategy {
 public:
  explicit UpdateElsewhere(const Options& options)
      : plugin_(options.text("device")), states_(space_named(options.text("states"))) {}

  void apply(Phase, ProgramRef program) override {
    device_ = program.device(plugin_);
    for (const Segment& segment : program.segments())
      if (!segment.operations(FunctionKind::update).empty()) move(segment);
  }

 private:
  static Space space_named(std::string_view name) {
    if (name == "pinned") return Space::pinned;
    if (name == "host") return Space::host;
    return name == "disk" ? Space::disk : Space::device;
  }

  void move(const Segment& segment) const {
    const ProgramRef program = segment.program();
    segment.run_on(FunctionKind::update, device_);
    for (const Id op : segment.operations(FunctionKind::update)) {
      const OpInfo info = program.op(op);
      if (info.def->copies || info.def->exchange) continue;
      for (const Id value : std::vector<Id>(info.operands.begin(), info.operands.end()))
        if (value != none && program.value(value).role == Role::state)
          program.place(value, {device_, states_});
    }
  }

  std::string plugin_;
  Space states_;
  std::int32_t device_ = 0;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::UpdateElsewhere, "update-elsewhere", "0.1.0", "Updates on another device",
            "phase=memory",
            "device | string | required | | Its plugin\n"
            "states | choice | device | device,pinned,host,disk | Where master copies and moments lie\n");
