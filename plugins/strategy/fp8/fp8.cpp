// Rounds the factors of matrix products to fp8 where they come in blocks (prun/fp8_blocks.hpp). What only
// such products read can be saved, cached and gathered in that form.
#include "passes.hpp"
#include "prun/plugin.hpp"

namespace prun::fp8 {
namespace {

class Fp8 final : public Strategy {
 public:
  explicit Fp8(const Options& options)
      : layers_{options.integer("first_in_compute"), options.integer("last_in_compute")},
        saves_(options.flag("activations")),
        caches_(options.flag("cache_weights")),
        gathers_(options.flag("all_gather_inputs")),
        every_(options.integer("statistics_every")),
        bound_(options.number("underflow_warning")) {}

  void check(const Options&, Problems problems) override {
    for (const auto& [key, layers] :
         {std::pair("first_in_compute", layers_.first), {"last_in_compute", layers_.last}}) {
      if (layers == 0) continue;
      const auto refuse = [&](bool given, const char* other, const char* what) {
        if (given)
          problems.add(key, detail::concat("cannot combine ", key, " with ", other, " = true, which ", what,
                                           "; leave one of the two out"));
      };
      refuse(caches_, "cache_weights", "quantizes the weights of all layers");
      refuse(saves_, "activations", "quantizes what all layers save");
      refuse(gathers_, "all_gather_inputs", "gathers inputs quantized");
    }
    if (gathers_ && every_ > 0)
      problems.add(
          "statistics_every",
          "cannot combine statistics_every with all_gather_inputs = true, which gathers inputs quantized; "
          "leave one of the two out");
  }

  // Text is made position by position, of which there are too few for blocks.
  void apply(Phase phase, ProgramRef program) override {
    const StepContext context = program.step_context();
    if (context.text) return;
    switch (phase) {
      case Phase::placed:
        multiply_in_fp8(program, layers_);
        if (every_ > 0 && context.training) count_in_fp8(program, every_, bound_);
        return;
      case Phase::state: declares_ = caches_ && declare_gathered_codes(program); return;
      case Phase::collectives:
        if (declares_) write_gathered_codes(program);
        return;
      default: break;
    }
    if (gathers_) gather_inputs_in_codes(program);
    if (saves_) save_in_codes(program);
    if (caches_ && context.training) cache_weights(program);
  }

 private:
  const LayersInCompute layers_;
  const bool saves_, caches_, gathers_;
  const std::int64_t every_;
  const double bound_;
  bool declares_ = false;  // whether codes may be gathered
};

}  // namespace
}  // namespace prun::fp8

PRUN_PLUGIN(
    strategy, prun::fp8::Fp8, "fp8", "0.1.0",
    "Rounds the factors of matrix products to fp8 (e4m3), in blocks of 128",
    "phase=placed,state,collectives,order; tune=changes; changes=first_in_compute, last_in_compute; "
    "frees=activations:true; also=float8,transformer_engine",
    "first_in_compute | int | 0 | 0..1000000 | Number of first layers whose products stay in compute\n"
    "last_in_compute | int | 0 | 0..1000000 | Number of last layers whose products stay in compute, as "
    "do the head's if there are any\n"
    "activations | bool | false | | Save activations that only products in fp8 read as these use them, "
    "half the bytes of bf16, instead of unquantized; no bit of the results changes\n"
    "cache_weights | bool | false | | Quantize weights once a step and cache them for all microbatches, "
    "in 2 bytes per element and 1/64 more, instead of for each product; sharded weights are then "
    "all-gathered quantized; no bit of the results changes\n"
    "all_gather_inputs | bool | false | | All-gather activations that only products in fp8 read "
    "quantized, as tensor parallelism with sequence = true gathers them: about half the bytes of bf16; "
    "no bit of the results changes\n"
    "statistics_every | int | 0 | 0..1000000000 | Steps between statistics of each factor: share that "
    "becomes zero or subnormal, largest magnitude, block scales; 0: never\n"
    "underflow_warning | float | 0.01 | 0..1 | With statistics_every: share of a layer's factor that may "
    "become zero before the run warns, once\n");
