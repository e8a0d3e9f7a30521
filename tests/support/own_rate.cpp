// Gives one segment a learning rate of its own: it replaces an operand of the ops that update its parameters,
// in the phase that the plugin is built for.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class OwnRate final : public Strategy {
 public:
  explicit OwnRate(const Options& options) : name_(options.text("segment")) {}

  void apply(Phase, ProgramRef program) override {
    for (const Segment& segment : program.segments())
      if (segment.info().name.view() == name_) change(segment);
  }

 private:
  static void change(const Segment& segment) {
    const std::vector<Id> ops = segment.operations(FunctionKind::update);
    const Id common = segment.runtime("lr");
    const Id own =
        segment.insert(FunctionKind::update, ops.front(), "scale", {common}, 1, {{"factor", 3.0}})[0];
    for (const Id op : ops) replace(segment.program(), op, common, own);
  }

  static void replace(ProgramRef program, Id op, Id old, Id fresh) {
    const OpInfo info = program.op(op);
    for (std::uint64_t i = 0; i < info.operands.size; ++i)
      if (info.operands.data[i] == old) return program.replace_operand(op, static_cast<int>(i), fresh);
  }

  std::string name_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::OwnRate, "own-rate-" PRUN_TEST_PHASE, "0.1.0",
            "Three times the learning rate for a segment", "phase=" PRUN_TEST_PHASE,
            "segment | string | required | | Whose parameters\n");
