// In expert parallelism each rank of an axis has a part of a model's experts, whole. It computes the choices
// of its experts for all positions: over an axis that splits the batch, positions come together for that and
// results go back in parts; over an axis of strategy tensor they are there already. Or each position is sent
// to the ranks that hold its experts (sent_rows.hpp). The places of these exchanges follow from the ops'
// rules.
#include "prun/plugin.hpp"
#include "sent_rows.hpp"

namespace prun {
namespace {

class ExpertParallel final : public Strategy {
 public:
  explicit ExpertParallel(const Options& options)
      : axes_(options.texts("axis")),
        sends_(options.text("exchange") == "all_to_all"),
        budget_(options.number("rows")) {}

  void apply(Phase, ProgramRef program) override {
    if (!has_experts(program))
      throw_error(ErrorCode::bad_input, "the model has no dimension experts to split over '", axes_.front(),
                  "'; leave the strategy out");
    for (const std::string& axis : axes_) program.split("experts", axis, SplitScope::weights);
    if (!sends_) return;
    const std::int64_t ranks = program.axis(axes_.front()).extent;
    if (ranks > 1) send_rows(program, {ranks, budget_});
  }

 private:
  static bool has_experts(ProgramRef program) {
    for (const Segment& segment : program.segments())
      for (const Id id : segment.values()) {
        const ValueInfo value = program.value(id);
        for (std::int32_t i = 0; i < value.rank; ++i)
          if (value.dims[i].name.view() == "experts") return true;
      }
    return false;
  }

  std::vector<std::string> axes_;
  bool sends_;
  double budget_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::ExpertParallel, "experts", "0.2.0",
            "Distributes the experts over axes of the mesh",
            "phase=shard; axis=batch; tune=exact; changes=exchange, rows; "
            "bench=exchange:gather, exchange:all_to_all; "
            "over_batch=exchange:all_to_all; untrained=exchange:gather; "
            "also=ep,expert_parallel,expert-parallel,moe",
            "axis     | names | dp | | Mesh axes to distribute the experts over: data, tensor or both\n"
            "exchange | choice | gather | gather,all_to_all | How tokens reach experts over an axis that "
            "splits the batch: gather: all-gather all tokens; all_to_all: send each token to the ranks that "
            "hold its experts (one axis only)\n"
            "rows     | float | 1.5 | 0.01.. | With all_to_all: tokens of a sequence that a rank can "
            "receive, as a multiple of the mean under even routing, at most all of them; a step that needs "
            "more is not applied, see run.on_nonfinite\n");
