// Tensor parallelism spreads attention heads, the MLP's width and the vocabulary over an axis. With
// `sequence`, what is between them (norms, residuals, dropout) is split along the sequence, so that a sum of
// partial results becomes a reduce-scatter and its use a gather. Their places follow from the ops' rules.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class TensorParallel final : public Strategy {
 public:
  explicit TensorParallel(const Options& options)
      : axis_(options.text("axis")), sequence_(options.flag("sequence")) {}

  // The order is a preference: a value is gathered along the sequence where a weight's dimension needs it.
  void apply(Phase, ProgramRef program) override {
    bool any = false;
    for (const char* dim : {"heads", "ffn", "vocab"}) {
      if (!has_dim(program, dim)) continue;
      // Beyond the groups of heads, ranks share out the queries of each group.
      if (std::string_view(dim) == "heads")
        program.split_beyond(dim, "queries", axis_);
      else
        program.split(dim, axis_);
      any = true;
    }
    if (!any)
      throw_error(ErrorCode::bad_input,
                  "the model has none of the dimensions heads, ffn and vocab to split "
                  "over '",
                  axis_, "'");
    if (sequence_) program.split("seq", axis_);
  }

 private:
  static bool has_dim(ProgramRef program, std::string_view name) {
    for (const Segment& segment : program.segments())
      for (const Id id : segment.values()) {
        const ValueInfo value = program.value(id);
        for (std::int32_t i = 0; i < value.rank; ++i)
          if (value.dims[i].name.view() == name) return true;
      }
    return false;
  }

  std::string axis_;
  bool sequence_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::TensorParallel, "tensor", "0.1.0",
            "Splits heads, MLP and vocabulary over an axis of the mesh (tensor parallelism)",
            "phase=shard; splits=model; axis=own; tune=exact; varies=sequence; "
            "also=tp,tensor_parallel,sequence,sequence_parallel",
            // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each option is one text on one line.
            "axis     | string | tp | | Mesh axis to split over\n"
            "sequence | bool | false | | Sequence parallelism: split activations between the blocks along "
            "the sequence, over the same axis\n");
