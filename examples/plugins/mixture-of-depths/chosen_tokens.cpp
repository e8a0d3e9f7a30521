// Ops that have a layer compute some of a sequence's tokens: choose_tokens finds those with the largest
// scores, take_tokens puts them side by side, and merge_tokens adds to each what the layer has made of it,
// times 2 sigmoid(score): a score of 0 changes nothing. Kernels for the CPU in fp32 and, for `prun verify`,
// fp64.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "prun/named_operands.hpp"
#include "prun/plugin.hpp"

namespace {

using namespace prun;

// ---------------------------------------------------------------- definitions

struct ChooseTokens {
  static constexpr const char* kind = "choose_tokens";
  static constexpr const char* help =
      "places of the tokens with the largest scores, in the order of the text";
  static constexpr OperandDef operands[] = {{"scores"}, {"places", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("chosen", 1)};
  static void rule(RuleOf<ChooseTokens> s) {
    const OperandShape& scores = s["scores"];
    if (scores.rank != 3 || scores.dims[2].extent != 1)
      throw_error(ErrorCode::bad_input, kind, " takes a score for each token");
    if (s.integer("chosen") < 1 || s.integer("chosen") > scores.dims[1].extent)
      throw_error(ErrorCode::bad_input, kind, " cannot choose ", s.integer("chosen"), " of ",
                  scores.dims[1].extent, " tokens");
    const Dim dims[] = {scores.dims[0], {"chosen", s.integer("chosen")}};
    s.output("places", DType::i32, dims, 2);
    s.whole("scores", 1, 3);
  }
};

struct TakeTokens {
  static constexpr const char* kind = "take_tokens";
  static constexpr const char* help = "the chosen tokens, side by side";
  static constexpr OperandDef operands[] = {{"x"}, {"places"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("tokens", 1)};
  static void rule(RuleOf<TakeTokens> s) {
    const Dim dims[] = {s["x"].dims[0], s["places"].dims[1], s["x"].dims[2]};
    s.output("y", s["x"].dtype, dims, 3);
    s.whole("x", 1, 2);
    s.whole("places", 1, 2);
    s.pass_partial({"x"});
  }
  static void gradient(GradientOf<TakeTokens> g) {
    g.input("x", "put_tokens", {g.arrived("y"), g["places"]}, {{"tokens", g.attr("tokens")}});
  }
};

struct PutTokens {
  static constexpr const char* kind = "put_tokens";
  static constexpr const char* help = "dx of take_tokens: zero where no token was chosen";
  static constexpr OperandDef operands[] = {{"dy"}, {"places"}, {"dx", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("tokens", 1)};
  static void rule(RuleOf<PutTokens> s) {
    const Dim dims[] = {s["dy"].dims[0], {"seq", s.integer("tokens")}, s["dy"].dims[2]};
    s.output("dx", s["dy"].dtype, dims, 3);
    s.whole("dx", 1, 2);
    s.whole("places", 1, 2);
    s.pass_partial({"dy"});
  }
};

struct MergeTokens {
  static constexpr const char* kind = "merge_tokens";
  static constexpr const char* help = "x, and 2 sigmoid(score) times what a layer has added to chosen tokens";
  static constexpr OperandDef operands[] = {{"x"},      {"made"},   {"taken"},
                                            {"places"}, {"scores"}, {"y", Access::write}};
  static void rule(RuleOf<MergeTokens> s) {
    if (s["made"].rank != 3 || !std::equal(s["made"].dims, s["made"].dims + 3, s["taken"].dims))
      throw_error(ErrorCode::bad_input, kind, " takes what a layer has made of each chosen token");
    s.like("y", "x");
    s.whole("x", 1, 2);
    s.whole("places", 1, 2);
    s.whole("scores", 2, 3);
  }
  static void gradient(GradientOf<MergeTokens> g) {
    const Id arrived = g.arrived("y");
    g.pass("x", arrived);
    g.inputs({"made", "taken", "scores"}, "merge_tokens_grad",
             {arrived, g["made"], g["taken"], g["places"], g["scores"]});
  }
};

struct MergeTokensGrad {
  static constexpr const char* kind = "merge_tokens_grad";
  static constexpr const char* help = "dmade, dtaken and dscores of merge_tokens";
  static constexpr OperandDef operands[] = {{"dy"},
                                            {"made"},
                                            {"taken"},
                                            {"places"},
                                            {"scores"},
                                            {"dmade", Access::write},
                                            {"dtaken", Access::write},
                                            {"dscores", Access::write}};
  static void rule(RuleOf<MergeTokensGrad> s) {
    s.like("dmade", "made");
    s.like("dtaken", "taken");
    s.like("dscores", "scores");
    s.whole("dy", 1, 2);
    s.whole("places", 1, 2);
    s.whole("scores", 2, 3);
    s.sum("dy", 2, 3);
  }
};

// ---------------------------------------------------------------- kernels

// Calls body(first element of the token in x, first element of it among the chosen, its number in scores).
template <class Body>
void each_chosen(const Tensor& places, std::int64_t tokens, std::int64_t width, Body&& body) {
  const std::int64_t chosen = places.dim[1];
  for (std::int64_t i = 0; i < places.elements(); ++i) {
    const std::int64_t token = i / chosen * tokens + places.as<const std::int32_t>()[i];
    body(token * width, i * width, token);
  }
}

template <class T>
T weight_of(T score) {
  return 2 / (1 + std::exp(-score));
}

template <class T>
void choose_tokens(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ChooseTokens> op(args);
  const Tensor &scores = op["scores"], &places = op["places"];
  const std::int64_t tokens = scores.dim[1], chosen = places.dim[1];
  std::vector<std::int32_t> order(static_cast<std::size_t>(tokens));
  for (std::int64_t b = 0; b < places.dim[0]; ++b) {
    const T* const of = scores.as<const T>() + b * tokens;
    std::iota(order.begin(), order.end(), 0);
    // NaN comes last, and the first in the text is chosen of equal scores.
    const auto comes_first = [&](std::int32_t a, std::int32_t c) {
      if (std::isnan(of[a]) || std::isnan(of[c]))
        return std::isnan(of[a]) == std::isnan(of[c]) ? a < c : std::isnan(of[c]);
      return of[a] != of[c] ? of[a] > of[c] : a < c;
    };
    std::partial_sort(order.begin(), order.begin() + chosen, order.end(), comes_first);
    std::sort(order.begin(), order.begin() + chosen);
    std::copy_n(order.begin(), chosen, places.as<std::int32_t>() + b * chosen);
  }
}

template <class T>
void take_tokens(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<TakeTokens> op(args);
  const std::int64_t width = op["x"].dim[2];
  each_chosen(op["places"], op["x"].dim[1], width, [&](std::int64_t from, std::int64_t to, std::int64_t) {
    std::copy_n(op["x"].as<const T>() + from, width, op["y"].as<T>() + to);
  });
}

template <class T>
void put_tokens(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<PutTokens> op(args);
  const Tensor& dx = op["dx"];
  std::fill_n(dx.as<T>(), dx.elements(), T{0});
  each_chosen(op["places"], dx.dim[1], dx.dim[2], [&](std::int64_t to, std::int64_t from, std::int64_t) {
    for (std::int64_t c = 0; c < dx.dim[2]; ++c) dx.as<T>()[to + c] += op["dy"].as<const T>()[from + c];
  });
}

template <class T>
void merge_tokens(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<MergeTokens> op(args);
  const Tensor& y = op["y"];
  const T *const made = op["made"].as<const T>(), *const taken = op["taken"].as<const T>();
  std::copy_n(op["x"].as<const T>(), y.elements(), y.as<T>());
  each_chosen(op["places"], y.dim[1], y.dim[2], [&](std::int64_t to, std::int64_t from, std::int64_t token) {
    const T weight = weight_of(op["scores"].as<const T>()[token]);
    for (std::int64_t c = 0; c < y.dim[2]; ++c)
      y.as<T>()[to + c] += weight * (made[from + c] - taken[from + c]);
  });
}

template <class T>
void merge_tokens_grad(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<MergeTokensGrad> op(args);
  const Tensor& dy = op["dy"];
  const T *const made = op["made"].as<const T>(), *const taken = op["taken"].as<const T>();
  T *const dmade = op["dmade"].as<T>(), *const dtaken = op["dtaken"].as<T>(),
           *const dscores = op["dscores"].as<T>();
  std::fill_n(dscores, op["dscores"].elements(), T{0});
  each_chosen(op["places"], dy.dim[1], dy.dim[2], [&](std::int64_t at, std::int64_t of, std::int64_t token) {
    const T weight = weight_of(op["scores"].as<const T>()[token]);
    T sum = 0;
    for (std::int64_t c = 0; c < dy.dim[2]; ++c) {
      const T d = dy.as<const T>()[at + c];
      dmade[of + c] = weight * d;
      dtaken[of + c] = -weight * d;
      sum += d * (made[of + c] - taken[of + c]);
    }
    dscores[token] += sum * weight * (1 - weight / 2);
  });
}

// ---------------------------------------------------------------- plugin

template <Kernel in_float, Kernel in_double>
Kernel choose(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  return type == DType::f32 ? in_float : type == DType::f64 ? in_double : nullptr;
}

class ChosenTokens final : public OpPlugin {
 public:
  explicit ChosenTokens(const Options&) {}
  std::vector<OpDef> ops() override {
    return {op_def<ChooseTokens>(), op_def<TakeTokens>(), op_def<PutTokens>(), op_def<MergeTokens>(),
            op_def<MergeTokensGrad>()};
  }
  std::vector<DeviceKernel> kernels() override {
    return {{"cpu", {"choose_tokens", choose<choose_tokens<float>, choose_tokens<double>>}},
            {"cpu", {"take_tokens", choose<take_tokens<float>, take_tokens<double>>}},
            {"cpu", {"put_tokens", choose<put_tokens<float>, put_tokens<double>>}},
            {"cpu", {"merge_tokens", choose<merge_tokens<float>, merge_tokens<double>>}},
            {"cpu", {"merge_tokens_grad", choose<merge_tokens_grad<float>, merge_tokens_grad<double>>}}};
  }
  std::vector<OpExample> examples() override {
    const Dim batch{"batch", 2}, seq{"seq", 8}, hidden{"hidden", 4}, chosen{"chosen", 3}, router{"router", 1};
    return {OpExample("choose_tokens").values(0, {batch, seq, router}).attr("chosen", 3),
            OpExample("take_tokens")
                .values(0, {batch, seq, hidden})
                .numbers(1, {batch, chosen}, 0, 7)
                .attr("tokens", 8),
            OpExample("merge_tokens")
                .values(0, {batch, seq, hidden})
                .values(1, {batch, chosen, hidden})
                .values(2, {batch, chosen, hidden})
                .numbers(3, {batch, chosen}, 0, 7)
                .values(4, {batch, seq, router})};
  }
};

}  // namespace

PRUN_PLUGIN(op, ChosenTokens, "chosen-tokens", "1.0.0", "Ops of layers that compute some of the tokens", "",
            "");
