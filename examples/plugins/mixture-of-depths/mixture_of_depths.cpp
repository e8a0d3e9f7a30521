// Mixture of depths (Raposo et al., 2024): each layer computes a share of a sequence's tokens, those that its
// router scores highest; the others pass it by. What a layer adds to a token is weighted by the score, so
// that the router learns.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

class MixtureOfDepths final : public Strategy {
 public:
  explicit MixtureOfDepths(const Options& options)
      : capacity_(options.number("capacity")), deviation_(options.number("init_std")) {}

  void apply(Phase, ProgramRef program) override {
    int routed = 0;
    for (const Segment& segment : program.segments()) {
      const SegmentInfo info = segment.info();
      if (info.incoming == none || info.outgoing == none) continue;
      route(segment);
      ++routed;
    }
    if (routed == 0)
      throw_error(ErrorCode::bad_input, "the model has no layers between its first and its last");
  }

 private:
  void route(const Segment& layer) const {
    const ProgramRef program = layer.program();
    const std::vector<Id> ops = layer.operations(FunctionKind::forward);
    check_counts_no_positions(program, ops);
    const Id x = layer.incoming(), before = layer.info().outgoing;
    const ValueInfo info = program.value(x);
    const double tokens = static_cast<double>(info.dims[1].extent);
    const double chosen = std::max(1.0, std::round(capacity_ * tokens));
    const Id router = layer.weight("router.weight", {{"router", 1}, info.dims[2]}, normal(deviation_));
    const auto first = [&](const char* kind, std::initializer_list<Id> inputs,
                           std::initializer_list<AttrValue> attrs = {}) {
      return layer.insert(FunctionKind::forward, ops.front(), kind, inputs, 1, attrs)[0];
    };
    const Id scores = first("linear", {x, router});
    const Id places = first("choose_tokens", {scores}, {{"chosen", chosen}});
    const Id taken = first("take_tokens", {x, places}, {{"tokens", tokens}});
    program.replace_value(x, taken);
    layer.outgoing(layer.op("merge_tokens", {x, before, taken, places, scores}));
  }

  // A layer sees the chosen tokens side by side. Ops that turn, bias or mix them by their distance would take
  // that for the distance in the text, so only ops that do not are allowed.
  static void check_counts_no_positions(const ProgramRef& program, const std::vector<Id>& ops) {
    constexpr std::string_view allowed[] = {"add",     "attention",  "dropout",   "gate",
                                            "gelu",    "join_heads", "layernorm", "linear",
                                            "rmsnorm", "scale",      "silu",      "split_heads"};
    for (const Id op : ops)
      if (const std::string_view kind = program.op(op).kind.view();
          std::find(std::begin(allowed), std::end(allowed), kind) == std::end(allowed))
        throw_error(ErrorCode::unsupported, "cannot leave tokens out of layers with op '", kind,
                    "', which may go by their positions; take a model that adds positions in front of its "
                    "layers, such as gpt");
  }

  double capacity_, deviation_;
};

}  // namespace

PRUN_PLUGIN(
    strategy, MixtureOfDepths, "mixture-of-depths", "1.0.0",
    "Has each layer compute a share of the tokens, those that its router chooses", "phase=model",
    "capacity | float | 0.5  | 0..1 | Share of a sequence's tokens that a layer computes\n"
    "init_std | float | 0.02 | 0..10 | Standard deviation of the normal numbers that routers start from\n");
