// A strategy: an adapter of low rank beside each matrix, trained in its place. Its parameters are
// new to weights that are there already: run.allow_changed names the strategy, and they start from the seed.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class Adapter final : public Strategy {
 public:
  explicit Adapter(const Options& options)
      : rank_{"adapter", options.integer("rank")}, freeze_(options.flag("freeze")) {}

  void apply(Phase, ProgramRef program) override {
    int added = 0;
    for (const Segment& segment : program.segments())
      for (const Id op : segment.operations(FunctionKind::forward)) added += adapt(segment, op);
    if (added == 0) throw_error(ErrorCode::bad_input, "the model has no matrix to adapt");
    log_line("adds ", added, " adapters");
  }

 private:
  // y = x * weight becomes y + x * down * up, in which up begins as zero: so does training where it was.
  bool adapt(const Segment& segment, Id op) const {
    const ProgramRef program = segment.program();
    const OpInfo info = program.op(op);
    if (info.kind.view() != "linear" || program.value(info.operands[1]).rank != 2) return false;
    const Id x = info.operands[0], weight = info.operands[1], y = info.operands[3];
    const ValueInfo matrix = program.value(weight);
    const std::string name(matrix.name.view());
    const Id behind = next(segment, op);
    const Id down = segment.weight(name + ".down", {rank_, matrix.dims[1]}, normal(0.02));
    const Id up = segment.weight(name + ".up", {matrix.dims[0], rank_}, zeros());
    const Id low = insert(segment, behind, "linear", {x, down, none});
    const Id sum = insert(segment, behind, "add", {y, insert(segment, behind, "linear", {low, up, none})});
    if (freeze_) program.set_parameter(weight, true, matrix.decay, matrix.lr_scale);
    read_instead(segment, behind, y, sum);
    return true;
  }

  static Id insert(const Segment& segment, Id before, const char* kind, std::initializer_list<Id> inputs) {
    return segment.insert(FunctionKind::forward, before, kind, inputs, 1)[0];
  }

  static Id next(const Segment& segment, Id op) {
    const std::vector<Id> all = segment.operations(FunctionKind::forward);
    for (std::size_t i = 0; i + 1 < all.size(); ++i)
      if (all[i] == op) return all[i + 1];
    return none;
  }

  // By all that stands behind, and by the next segment.
  static void read_instead(const Segment& segment, Id from, Id old, Id fresh) {
    bool behind = false;
    for (const Id op : segment.operations(FunctionKind::forward)) {
      behind = behind || op == from;
      const OpInfo info = segment.program().op(op);
      for (std::uint64_t i = 0; behind && i < info.operands.size; ++i)
        if (segment.program().op(op).operands[i] == old)
          segment.program().replace_operand(op, static_cast<int>(i), fresh);
    }
    if (segment.info().outgoing == old) segment.outgoing(fresh);
  }

  Dim rank_;
  bool freeze_;
};

}  // namespace

PRUN_PLUGIN(strategy, Adapter, "adapter", "1.0.0", "Adds low-rank adapters to matrices", "phase=model",
            "rank   | int  | 4    | 1..4096 | Rank of an adapter\n"
            "freeze | bool | true |         | Train the adapters instead of the matrices\n");
