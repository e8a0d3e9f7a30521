// Context parallelism: each coordinate of an axis has a part of every sequence. What treats positions alike
// runs on the part; attention keeps its queries, and the keys and values of all positions come together in
// front of it. Where that is and what their gradients take back follows from the ops' rules.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class ContextParallel final : public Strategy {
 public:
  explicit ContextParallel(const Options& options)
      : axis_(options.text("axis")),
        shares_{options.text("balance") == "zigzag" ? SequenceBalance::zigzag : SequenceBalance::in_order,
                options.integer("pieces")} {}

  void apply(ProgramRef program) override { program.share_sequence(axis_, shares_); }

 private:
  std::string axis_;
  SequenceShares shares_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::ContextParallel, "context", "0.1.0",
            "Splits each sequence over an axis of the mesh, attention by its queries",
            "phase=shard; splits=model; also=cp,context_parallel,ring_attention",
            "axis    | string | cp | | Axis of the mesh to split sequences over\n"
            "balance | choice | zigzag | zigzag,none | Parts of a sequence: zigzag: a chunk from its front "
            "and one from its back, as much causal attention for all; none: one after the other\n"
            "pieces  | int | 1 | 1..8 | Groups of heads whose keys and values come together while attention "
            "runs on the one before\n");
