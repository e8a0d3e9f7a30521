// ZeRO lets the ranks of a data-parallel axis, or of several axes that sum gradients, keep in parts what each
// of them would otherwise keep whole.
//   stage 0  nothing: as without this strategy
//   stage 1  optimizer state and master copies
//   stage 2  gradients too: summed over the ranks as soon as no microbatch has given only some of them, which
//            is mostly after each, and each rank adds up its part
//   stage 3  parameters too: gathered one use ahead, forward and backward
// Where parameters are in parts over ranks of several hosts, `secondary` names the axes of those of one host:
// they have a copy among them, from which each use gathers.
// Stage 3 with reduce = "step" keeps gradients whole after all and sums them once a step: m times less to
// send for m microbatches.
#include <algorithm>

#include "collectives.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Zero final : public Strategy {
 public:
  explicit Zero(const Options& options)
      : axes_(options.texts("axis")),
        secondary_(options.has("secondary") ? options.texts("secondary") : std::vector<std::string>{}),
        stage_(options.integer("stage")),
        once_(options.text("reduce") == "step") {}

  void check(const Options&, Problems problems) override {
    if (stage_ == 2 && once_)
      problems.add(
          "reduce",
          "stage 2 with reduce = \"step\" keeps gradients whole, which is stage 1; choose stage = 1, or "
          "reduce = \"microbatch\"");
    if (stage_ < 3 && !secondary_.empty())
      problems.add("secondary", "secondary is a copy of sharded parameters, and stage " +
                                    std::to_string(stage_) +
                                    " does not shard them; choose stage = 3, or leave secondary out");
  }

  void apply(Phase phase, ProgramRef program) override {
    if (stage_ == 0) return;
    if (phase == Phase::state) return shard(program);
    const Array<FlatParameter> all = program.flat_parameters();
    for (const FlatParameter* first = all.begin(); first != all.end();) {
      const FlatParameter* const behind = std::find_if(
          first, all.end(), [&](const FlatParameter& flat) { return flat.segment != first->segment; });
      const std::vector<FlatParameter> of_segment(first, behind);
      zero::reduce_gradients(program, of_segment);
      zero::gather_parameters(program, of_segment);
      first = behind;
    }
  }

 private:
  void shard(ProgramRef program) const {
    const std::vector<Text> secondary(secondary_.begin(), secondary_.end());
    program.shard_state(axes_, {.gradients = stage_ >= 2 && !once_,
                                .parameters = stage_ >= 3,
                                .secondary = {secondary.data(), secondary.size()}});
  }

  std::vector<std::string> axes_, secondary_;
  std::int64_t stage_;
  bool once_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Zero, "zero", "0.1.0",
            "Shards optimizer state, gradients and parameters (ZeRO, FSDP)",
            "phase=state,collectives; axis=batch; tune=exact; varies=stage:1|2|3, reduce; "
            "also=fsdp,fsdp2,hsdp,deepspeed,distributed_optimizer; frees=stage:1, stage:2, stage:3; "
            "bench=stage:0 reduce:microbatch, stage:1 "
            "reduce:microbatch, stage:2 reduce:microbatch, stage:3",
            "axis   | names  | dp | | Mesh axis to shard over, or several: each parameter over those that "
            "sum its gradient\n"
            "stage  | int    | 1  | 0..3 | What is sharded: 0: nothing; 1: optimizer state; 2: and "
            "gradients; 3: and parameters\n"
            "reduce | choice | microbatch | microbatch,step | With stage 3, when gradients are reduced: "
            "microbatch: after each one, as with stage 2; step: once a step, which communicates less but "
            "keeps them unsharded until then\n"
            "secondary | names | none | | With stage 3 over several axes: the last of them, those within a "
            "host, whose ranks hold a secondary copy of the parameters (hpZ); it is refreshed once a step, "
            "and each use gathers over these axes only\n");
