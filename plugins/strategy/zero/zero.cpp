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

  void apply(Phase, ProgramRef program) override {
    if (stage_ == 0) return;
    program.keep_in_parts(axes_, {.gradients = stage_ >= 2 && !once_, .parameters = stage_ >= 3});
    if (!secondary_.empty()) program.copy_within(secondary_);
  }

 private:
  std::vector<std::string> axes_, secondary_;
  std::int64_t stage_;
  bool once_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::Zero, "zero", "0.1.0", "Keeps optimizer state, gradients, parameters in parts",
    "phase=state; axis=batch; tune=exact; varies=stage:1|2|3, reduce; "
    "also=fsdp,fsdp2,hsdp,deepspeed,distributed_optimizer; frees=stage:1, stage:2, stage:3; "
    "bench=stage:0 reduce:microbatch, stage:1 "
    "reduce:microbatch, stage:2 reduce:microbatch, stage:3",
    "axis   | names  | dp | | Axis of the mesh whose ranks share them out, or several: each parameter over "
    "those that sum its gradient\n"
    "stage  | int    | 1  | 0..3 | 0: nothing; 1: optimizer state; 2: gradients too; 3: parameters too\n"
    "reduce | choice | microbatch | microbatch,step | When stage 3 sums gradients, as stage 2 does; step: "
    "kept whole until then, which sends less\n"
    "secondary | names | none | | Stage 3: of several axes the last ones, those within a host, whose ranks "
    "have "
    "a copy of the parameters among them; it is brought once a step, and each use gathers it over these "
    "axes\n");
