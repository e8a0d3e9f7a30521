// Context parallelism gives each coordinate of an axis a part of every sequence, and ops that treat positions
// alike run on the part. Attention looks at all of them, in one of two ways. With `gather` a rank keeps its
// queries, and the keys and values of all positions come together in front of it, or of those that a window
// reaches. With `ulysses` queries,
// keys and values go from parts of the sequence to parts of the heads, and its results back. Where either is,
// and what gradients take back, follows from the ops' rules.
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
      throw_error(
          ErrorCode::bad_input, "pieces = ", shares_.pieces,
          " is of keys and values that come together (method = \"gather\"), and with \"ulysses\" none "
          "do; leave pieces out");
  }

  void apply(Phase, ProgramRef program) override {
    if (!by_heads_) {
      program.share_sequence(axis_, shares_);
      return;
    }
    program.split("seq", axis_);
    // Beyond the groups of heads, ranks share out the queries of each group.
    program.split_beyond("heads", "queries", axis_, SplitScope::ops);
  }

 private:
  std::string axis_;
  bool by_heads_;
  SequenceShares shares_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::ContextParallel, "context", "0.2.0",
    "Splits each sequence over an axis of the mesh, attention by its queries or its heads",
    "phase=shard; splits=model, sequence; axis=own; timed=method; tune=exact; "
    "varies=method:gather|ulysses, pieces:1|2|4; also=cp,context_parallel,ring_attention,ulysses",
    "axis    | string | cp | | Axis of the mesh to split sequences over\n"
    "method  | choice | gather | gather,ulysses,auto | Attention of a rank: gather: its queries to the "
    "keys and values of all positions, or of those that a window reaches; ulysses: a part of the heads, all "
    "positions; auto: with which a "
    "step is predicted to take less time\n"
    "balance | choice | zigzag | zigzag,none | With gather, parts of a sequence: zigzag: a chunk from "
    "its front and one from its back, as much causal attention for all; none: one after the other. "
    "With ulysses parts are as they come, and all have as much to do\n"
    "pieces  | int | 1 | 1..8 | With gather, groups of heads whose keys and values come together while "
    "attention runs on the one before\n");
