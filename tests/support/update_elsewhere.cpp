// Updates run on another device: master copies and moments live there, gradients and what else the update
// reads is copied into pinned memory, and the parameters come back from it.
#include <map>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class UpdateElsewhere final : public Strategy {
 public:
  explicit UpdateElsewhere(const Options& options)
      : plugin_(options.text("device")),
        states_(space_named(options.text("states"))),
        copies_(options.flag("copies")) {}

  void apply(ProgramRef program) override {
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

  // What an update reads is copied in before all of them; a parameter comes back right behind its own, where
  // what follows (a gather) finds it.
  void move(const Segment& segment) const {
    const ProgramRef program = segment.program();
    segment.run_on(FunctionKind::update, device_);
    const std::vector<Id> ops = segment.operations(FunctionKind::update);
    std::map<Id, Id> copies;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (program.op(ops[i]).kind.view() != "adamw") continue;
      const Id parameter = program.op(ops[i]).operands.data[0];
      move_operands(segment, ops[i], ops.front(), copies);
      if (!copies_) continue;
      const Id behind = i + 1 < ops.size() ? ops[i + 1] : none;
      program.replace_operand(copy(segment, copies.at(parameter), behind), 1, parameter);
    }
  }

  // adamw: parameter, master, gradient, m, v, and what is common to all.
  void move_operands(const Segment& segment, Id op, Id before, std::map<Id, Id>& copies) const {
    const ProgramRef program = segment.program();
    const OpInfo info = program.op(op);
    const std::vector<Id> operands(info.operands.begin(), info.operands.end());
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const bool state = i == 1 || i == 3 || i == 4;
      if (operands[i] == none) continue;
      if (state) program.place(operands[i], {device_, states_});
      if (state || !copies_) continue;
      const auto [entry, fresh] = copies.try_emplace(operands[i], none);
      if (fresh) {
        const Id in = copy(segment, operands[i], before);
        entry->second = program.op(in).operands.data[1];
        program.place(entry->second, {0, Space::pinned});
      }
      program.replace_operand(op, static_cast<int>(i), entry->second);
    }
  }

  // The op that makes a copy.
  static Id copy(const Segment& segment, Id value, Id before) {
    const Id made = segment.insert(FunctionKind::update, before, "copy", {value}, 1)[0];
    for (const Id op : segment.operations(FunctionKind::update)) {
      const OpInfo info = segment.program().op(op);
      if (info.kind.view() == "copy" && info.operands.data[1] == made) return op;
    }
    throw_error(ErrorCode::internal, "a copy that is not there");
  }

  std::string plugin_;
  Space states_;
  bool copies_;
  std::int32_t device_ = 0;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::UpdateElsewhere, "update-elsewhere", "0.1.0", "Updates on another device",
            "phase=memory",
            "device | string | required | | Its plugin\n"
            "states | choice | device | device,pinned,host,disk | Where master copies and moments lie\n"
            "copies | bool | true | | Whether what else the update needs is copied to where it reaches\n");
