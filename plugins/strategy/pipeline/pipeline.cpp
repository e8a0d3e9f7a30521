// Pipeline parallelism cuts the chain of layers into stages that the ranks of an axis share out, and
// microbatches pass through them in the order of a schedule plugin. What is sent from stage to stage follows
// from the cut.
#include <cmath>

#include "cut_evenly.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Pipeline final : public Strategy {
 public:
  explicit Pipeline(const Options& options)
      : axis_(options.text("axis")),
        schedule_(options.text("schedule")),
        chunks_(static_cast<std::int32_t>(options.integer("chunks"))) {
    for (const double count : options.numbers("layers")) layers_.push_back(std::llround(count));
  }
  void apply(Phase, ProgramRef program) override {
    const std::int64_t ranks = program.axis(axis_).extent;
    const bool by_cost = layers_.empty() && ranks > 1;
    program.pipeline(axis_, schedule_, chunks_,
                     by_cost ? cut_evenly(program.layer_flops(), ranks * chunks_) : layers_);
  }

 private:
  std::string axis_, schedule_;
  std::int32_t chunks_;
  std::vector<std::int64_t> layers_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Pipeline, "pipeline", "0.1.0",
            "Splits the layers into pipeline stages over an axis of the mesh",
            "phase=partition; splits=model; axis=own; tune=exact; varies=schedule:@schedule, chunks:1|2|4; "
            "also=pp,pipeline_parallel",
            // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each option is one text on one line.
            "axis     | string | pp | | Mesh axis whose ranks hold the stages\n"
            "schedule | string | 1f1b | | Schedule plugin: the order in which a rank runs forward and "
            "backward passes\n"
            "chunks   | int | 1 | 1..1024 | Stages per rank (virtual pipeline stages)\n"
            "layers   | ints | [] | 1..1000000 | Layers of each stage, with embedding and head counted; "
            "empty: balanced by cost\n");
