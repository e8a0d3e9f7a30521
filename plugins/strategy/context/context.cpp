// Context parallelism gives each coordinate of an axis a part of every sequence, and ops that treat positions
// alike run on the part. Attention looks at all of them, in one of two ways. With `gather` a rank keeps its
// queries, and the keys and values of all positions come together in front of it, or of those that a window
// reaches. With `ulysses` queries,
// keys and values go from parts of the sequence to parts of the heads, and its results back. Where either is,
// and what gradients take back, follows from the ops' rules. With `gather`, ops that pass something on along
// a sequence, such as a state, are told of how many runs of positions it consists: they have attributes for
// that, and are split by it (OpDef::split).
#include <algorithm>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class ContextParallel final : public Strategy {
 public:
  explicit ContextParallel(const Options& options)
      : axis_(options.text("axis")),
        by_heads_(options.text("method") == "ulysses"),
        shares_{options.text("balance") == "zigzag" ? SequenceBalance::zigzag : SequenceBalance::in_order,
                options.integer("pieces")} {
    if (by_heads_ && shares_.pieces != 1)
      throw_error(ErrorCode::bad_input, "cannot use pieces = ", shares_.pieces,
                  " with method = \"ulysses\", which gathers no keys and values; leave pieces out");
  }

  void apply(Phase, ProgramRef program) override {
    if (!by_heads_) {
      if (program.axis(axis_).extent > 1) tell_runs(program);
      program.share_sequence(axis_, shares_);
      return;
    }
    program.split("seq", axis_);
    // Beyond the groups of heads, ranks share out the queries of each group.
    program.split_beyond("heads", "queries", axis_, SplitScope::ops);
  }

 private:
  void tell_runs(ProgramRef program) const {
    const AxisInfo axis = program.axis(axis_);
    const bool zigzag = shares_.balance == SequenceBalance::zigzag;
    for (const Segment& segment : program.segments())
      for (int kind = 0; kind < function_kinds; ++kind)
        for (const Id op : segment.operations(static_cast<FunctionKind>(kind))) {
          if (!has_runs(*program.op(op).def)) continue;
          program.set_attr(op, "zigzag", zigzag ? 1 : 0);
          program.set_attr(op, "over", axis.number);
          program.set_attr(op, "runs", static_cast<double>(axis.extent * (zigzag ? 2 : 1)));
        }
  }
  static bool has_runs(const OpDef& def) {
    return std::any_of(def.attrs, def.attrs + def.attr_count,
                       [](const AttrDef& attr) { return std::string_view(attr.name) == "runs"; });
  }

  std::string axis_;
  bool by_heads_;
  SequenceShares shares_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::ContextParallel, "context", "0.2.0",
    "Splits each sequence over an axis of the mesh (context parallelism), attention by queries or by heads",
    "phase=shard; splits=model, sequence; axis=own; timed=method; tune=exact; "
    "varies=method:gather|ulysses, pieces:1|2|4; also=cp,context_parallel,ring_attention,ulysses",
    "axis    | string | cp | | Mesh axis to split sequences over\n"
    "method  | choice | gather | gather,ulysses,auto | gather: each rank all-gathers keys and "
    "values, or those that a window reaches, for its queries; ulysses: each rank takes all positions "
    "of some heads by all-to-all; auto: whichever is predicted to be faster\n"
    "balance | choice | zigzag | zigzag,none | With gather, how sequences are split: zigzag: each "
    "rank gets a chunk from the front and one from the back, which balances causal attention; none: "
    "contiguously. ulysses splits contiguously and is balanced\n"
    "pieces  | int | 1 | 1..8 | With gather: groups of heads whose keys and values are gathered one "
    "by one, while attention runs on the group before\n");
