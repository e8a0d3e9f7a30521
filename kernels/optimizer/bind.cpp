// Launches sum_squares, clip_factor, count_non_finite, adamw, sgd, momentum and average_weights. Neighbours
// of one kind become one launch.
#include "optimizer/cuda.hpp"

#include <algorithm>

#include "cuda/check.hpp"
#include "device_op.hpp"
#include "prun/ops/optimizer.hpp"
#include "prun/ops/summands.hpp"
#include "prun/ops/whole_update.hpp"

namespace prun::cuda {
namespace {

// Says whether the operands from `from` on are the very same numbers, the operands before it of the same
// types, and the first `attrs` attributes equal.
template <class Op>
bool alike(const Launch& a, const Launch& b, OperandOf<Op> from, int attrs) {
  for (int i = 0; i < a.args.operand_count; ++i) {
    const Tensor &x = a.args.operands[i], &y = b.args.operands[i];
    if (i >= from.index ? x.data != y.data : x.dtype != y.dtype || !x.data != !y.data) return false;
  }
  for (int i = 0; i < attrs; ++i)
    if (a.args.attrs[i].f != b.args.attrs[i].f) return false;
  return true;
}

template <class Op, class T>
Work bind_sum_squares_of(Launches launches) {
  std::vector<Values<T>> tensors;
  for (const Launch& launch : launches) {
    const Tensor& x = ArgsOf<Op>(launch.args)["x"];
    tensors.push_back({x.as<const T>(), x.elements()});
  }
  const KernelArgs& args = launches.front().args;
  const ArgsOf<Op> op(args);
  return [tensors = std::move(tensors), sum = op["sum"].template as<double>(),
          workspace = args.workspace](Stream stream) { sum_squares<T>(tensors, sum, workspace, stream); };
}

template <class Op>
Work bind_sum_squares(Launches launches, Libraries&, Stream) {
  const ArgsOf<Op> op(launches.front().args);
  return by_value(op["x"].dtype, [&]<class T>() -> Work { return bind_sum_squares_of<Op, T>(launches); });
}

void clip_factor(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ClipFactor> op(args);
  const ClipFactor numbers{.sum = op["sum"].as<const double>(),
                           .loss = op["loss"].as<const double>(),
                           .halt = op["halt"].as<const double>(),
                           .norm = op["norm"].as<double>(),
                           .clip = op["clip"].as<double>(),
                           .keep = op["keep"].as<double>(),
                           .scale = op["scale"].as<const double>()};
  cuda::clip_factor(numbers, op.real("limit"), stream_of(context));
}

// In a flat range that several tensors share, each tensor counts its own elements.
template <class T>
CountedValues<T> counted_values(const KernelArgs& args) {
  const ArgsOf<ops::CountNonFinite> op(args);
  const Tensor& x = op["x"];
  const std::int64_t first = op.integer("first") - x.start[0], elements = op.integer("elements");
  const std::int64_t from = elements > 0 ? std::max<std::int64_t>(first, 0) : 0;
  const std::int64_t to = elements > 0 ? std::min(first + elements, x.elements()) : x.elements();
  return {x.as<const T>() + from, std::max<std::int64_t>(to - from, 0),
          op["counts"].as<double>() + op.integer("index") + args.layer * op.integer("stride")};
}

template <class T>
Work bind_count_of(Launches launches) {
  std::vector<CountedValues<T>> tensors;
  for (const Launch& launch : launches)
    if (const CountedValues<T> values = counted_values<T>(launch.args); values.elements > 0)
      tensors.push_back(values);
  const ArgsOf<ops::CountNonFinite> op(launches.front().args);
  return [tensors = std::move(tensors), keep = op["keep"].as<const double>()](Stream stream) {
    if (!tensors.empty()) count_non_finite<T>(tensors, keep, stream);
  };
}

Work bind_count(Launches launches, Libraries&, Stream) {
  const ArgsOf<ops::CountNonFinite> op(launches.front().args);
  return by_value(op["x"].dtype, [&]<class T>() -> Work { return bind_count_of<T>(launches); });
}

// Calls add(first element, count, numbers of the elements) for what a launch updates: tensor by tensor where
// the update rounds by chance.
template <class Types, class Op, class Add>
void each_update(const ArgsOf<Op>& op, Add add) {
  const KernelArgs& args = op;
  if constexpr (Types::chancy_states || Types::chancy_weights) {
    check_updates(args);
    for (std::int32_t i = 0; i < args.update_count; ++i)
      add(args.updates[i].begin, args.updates[i].count, args.updates[i]);
  } else {
    add(0, op["parameter"].elements(), TensorElements{});
  }
}

// Returns element `at` of an operand that may be absent.
template <class T>
T* from(const Tensor& x, std::int64_t at) {
  if constexpr (std::is_void_v<T>)
    return nullptr;
  else
    return x.data ? x.as<T>() + at : nullptr;
}

AdamSettings adam_settings(const ArgsOf<ops::AdamW>& op) {
  return {.beta1 = op.real("beta1"),
          .beta2 = op.real("beta2"),
          .eps = op.real("eps"),
          .lr = op["lr"].as<const double>(),
          .step = op["step"].as<const double>(),
          .clip = op["clip"].as<const double>(),
          .keep = op["keep"].as<const double>(),
          .seed = op["seed"].as<const double>()};
}

// Each tensor is a launch of its own, since its scales begin with its blocks.
template <class Types>
Work bind_adamw_in_8_bits(Launches launches) {
  std::vector<EightBitAdamTensor<Types>> tensors;
  const KernelArgs& args = launches.front().args;
  const ArgsOf<ops::AdamW> op(args);
  check_updates(args);
  for (std::int32_t i = 0; i < args.update_count; ++i) {
    const TensorElements& numbers = args.updates[i];
    const std::int64_t at = numbers.begin, first = at / eight_bit_block;
    PRUN_CHECK(at % eight_bit_block == 0 && numbers.count % eight_bit_block == 0, "a part cuts a block");
    tensors.push_back({from<typename Types::Parameter>(op["parameter"], at),
                       from<typename Types::Master>(op["master"], at),
                       from<const typename Types::Gradient>(op["gradient"], at),
                       op["m"].as<std::uint8_t>() + at, op["v"].as<std::uint8_t>() + at,
                       op["m_scale"].as<float>() + first, op["v_scale"].as<float>() + first, numbers.count,
                       op.real("weight_decay"), op.real("lr_scale"), numbers});
  }
  return [tensors = std::move(tensors), settings = adam_settings(op)](Stream stream) {
    for (const EightBitAdamTensor<Types>& tensor : tensors) adamw_in_8_bits<Types>(tensor, settings, stream);
  };
}

template <class Types>
Work bind_adamw_of(Launches launches) {
  std::vector<AdamTensor<Types>> tensors;
  for (const Launch& launch : launches) {
    const ArgsOf<ops::AdamW> op(launch.args);
    each_update<Types>(op, [&](std::int64_t at, std::int64_t count, const TensorElements& numbers) {
      tensors.push_back({from<typename Types::Parameter>(op["parameter"], at),
                         from<typename Types::Master>(op["master"], at),
                         from<const typename Types::Gradient>(op["gradient"], at),
                         from<typename Types::State>(op["m"], at), from<typename Types::State>(op["v"], at),
                         count, op.real("weight_decay"), op.real("lr_scale"), numbers});
    });
  }
  const ArgsOf<ops::AdamW> first(launches.front().args);
  return [tensors = std::move(tensors), settings = adam_settings(first)](Stream stream) {
    adamw<Types>(tensors, settings, stream);
  };
}

// No update in fp64 is of this kind.
template <class Types>
Work bind_eight_bits(Launches launches) {
  if constexpr (std::is_same_v<typename Types::C, double>)
    return {};
  else
    return bind_adamw_in_8_bits<Types>(launches);
}

Work bind_adamw(Launches launches, Libraries&, Stream) {
  const OpShape types = types_of(launches.front().args);
  const ShapeOf<ops::AdamW> s(types);
  if (s["m"].dtype == DType::u8)
    return choose_update(s, DType::f32,
                         [&]<class Types>() -> Work { return bind_eight_bits<Types>(launches); });
  return choose_update(s, s["m"].dtype,
                       [&]<class Types>() -> Work { return bind_adamw_of<Types>(launches); });
}

MomentumSettings momentum_settings(const ArgsOf<ops::Momentum>& op) {
  return {.now = op.real("now"),
          .later = op.real("later"),
          .sign = op.real("sign") != 0,
          .clip = op["clip"].as<const double>(),
          .keep = op["keep"].as<const double>(),
          .step = op["step"].as<const double>(),
          .seed = op["seed"].as<const double>()};
}

template <class Types>
Work bind_sgd_of(Launches launches) {
  std::vector<SgdTensor<Types>> tensors;
  for (const Launch& launch : launches) {
    const ArgsOf<ops::Sgd> op(launch.args);
    each_update<Types>(op, [&](std::int64_t at, std::int64_t count, const TensorElements& numbers) {
      tensors.push_back({from<typename Types::Parameter>(op["parameter"], at),
                         from<typename Types::Master>(op["master"], at),
                         from<const typename Types::Gradient>(op["gradient"], at),
                         from<typename Types::State>(op["momentum"], at), count, op.real("weight_decay"),
                         op.real("lr_scale"), numbers});
    });
  }
  const ArgsOf<ops::Sgd> op(launches.front().args);
  const SgdSettings settings{.momentum = op.real("momentum"),
                             .lr = op["lr"].as<const double>(),
                             .clip = op["clip"].as<const double>(),
                             .keep = op["keep"].as<const double>(),
                             .step = op["step"].as<const double>(),
                             .seed = op["seed"].as<const double>()};
  return [tensors = std::move(tensors), settings](Stream stream) { sgd<Types>(tensors, settings, stream); };
}

// Returns the type of its momentum or, where it keeps none, the type that this would have.
DType sgd_state(const ShapeOf<ops::Sgd>& s) {
  return s.has("momentum") ? s["momentum"].dtype : state_type(s["gradient"]);
}

Work bind_sgd(Launches launches, Libraries&, Stream) {
  const OpShape types = types_of(launches.front().args);
  const ShapeOf<ops::Sgd> s(types);
  return choose_update(s, sgd_state(s), [&]<class Types>() -> Work { return bind_sgd_of<Types>(launches); });
}

template <class Types>
Work bind_momentum_of(Launches launches) {
  std::vector<MomentumTensor<Types>> tensors;
  for (const Launch& launch : launches) {
    const ArgsOf<ops::Momentum> op(launch.args);
    each_update<Types>(op, [&](std::int64_t at, std::int64_t count, const TensorElements& numbers) {
      tensors.push_back({from<const typename Types::Gradient>(op["gradient"], at),
                         from<typename Types::State>(op["m"], at),
                         from<typename Types::C>(op["direction"], at), count, numbers});
    });
  }
  const ArgsOf<ops::Momentum> first(launches.front().args);
  return [tensors = std::move(tensors), settings = momentum_settings(first)](Stream stream) {
    momentum<Types>(tensors, settings, stream);
  };
}

template <class Gradient>
Work bind_momentum_in_8_bits(const KernelArgs& args) {
  const ArgsOf<ops::Momentum> op(args);
  check_updates(args);
  std::vector<EightBitMomentumTensor<Gradient>> tensors;
  for (std::int32_t i = 0; i < args.update_count; ++i) {
    const TensorElements& numbers = args.updates[i];
    const std::int64_t at = numbers.begin;
    PRUN_CHECK(at % eight_bit_block == 0 && numbers.count % eight_bit_block == 0, "a part cuts a block");
    tensors.push_back({op["gradient"].as<const Gradient>() + at, op["m"].as<std::uint8_t>() + at,
                       op["scale"].as<float>() + at / eight_bit_block, op["direction"].as<float>() + at,
                       numbers.count, numbers});
  }
  return [tensors = std::move(tensors), settings = momentum_settings(op), all = op["direction"].as<float>(),
          bytes = static_cast<std::size_t>(op["direction"].elements()) * sizeof(float)](Stream stream) {
    check(cudaMemsetAsync(all, 0, bytes, stream), "cudaMemsetAsync");
    for (const EightBitMomentumTensor<Gradient>& tensor : tensors)
      momentum_in_8_bits<Gradient>(tensor, settings, stream);
  };
}

Work bind_momentum(Launches launches, Libraries&, Stream) {
  const KernelArgs& args = launches.front().args;
  const OpShape types = types_of(args);
  const ShapeOf<ops::Momentum> s(types);
  if (s["m"].dtype == DType::u8)
    return s["gradient"].dtype == DType::bf16 ? bind_momentum_in_8_bits<bf16>(args)
                                              : bind_momentum_in_8_bits<float>(args);
  return choose_momentum(s, [&]<class Types>() -> Work { return bind_momentum_of<Types>(launches); });
}

template <class Types>
Work bind_average_of(Launches launches) {
  std::vector<AveragedTensor<Types>> tensors;
  for (const Launch& launch : launches) {
    const ArgsOf<ops::AverageWeights> op(launch.args);
    tensors.push_back({from<const typename Types::Parameter>(op["parameter"], 0),
                       from<const typename Types::Master>(op["master"], 0),
                       from<typename Types::C>(op["average"], 0), op["parameter"].elements()});
  }
  const ArgsOf<ops::AverageWeights> first(launches.front().args);
  return [tensors = std::move(tensors), decay = first.real("decay"), step = first["step"].as<const double>(),
          keep = first["keep"].as<const double>()](Stream stream) {
    average_weights<Types>(tensors, decay, step, keep, stream);
  };
}

Work bind_average_weights(Launches launches, Libraries&, Stream) {
  const OpShape types = types_of(launches.front().args);
  const ShapeOf<ops::AverageWeights> s(types);
  return choose_average(s, [&]<class Types>() -> Work { return bind_average_of<Types>(launches); });
}

std::int64_t sum_squares_workspace_of(const OpShape&, std::int32_t) { return sum_squares_workspace(); }

template <class Op>
Kernel select_sum_squares(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  if (!all_double(s, {"sum"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_count(const OpShape& shape) {
  const ShapeOf<ops::CountNonFinite> s(shape);
  if (!all_double(s, {"keep", "counts"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_clip_factor(const OpShape& shape) {
  const ShapeOf<ops::ClipFactor> s(shape);
  const bool scale = !s.has("scale") || all_double(s, {"scale"});
  return all_double(s, {"sum", "loss", "halt", "norm", "clip", "keep"}) && scale ? clip_factor : nullptr;
}

Kernel select_adamw(const OpShape& shape) {
  const ShapeOf<ops::AdamW> s(shape);
  const DType state = s["m"].dtype;
  if (state == DType::u8) {
    if (!in_eight_bits(s["m"], s["m_scale"]) || !in_eight_bits(s["v"], s["v_scale"]) ||
        !all_double(s, {"lr", "step", "clip", "keep", "seed"}))
      return nullptr;
    return choose_update(s, DType::f32, []<class Types>() -> Kernel { return runs_when_bound; });
  }
  if (!same_type(s, {"m", "v"}) || !all_double(s, {"lr", "step", "clip", "keep"}) || !has_chance(s, state))
    return nullptr;
  return choose_update(s, state, []<class Types>() -> Kernel { return runs_when_bound; });
}

// Momentum without a buffer to keep it in is refused.
Kernel select_sgd(const OpShape& shape) {
  const ShapeOf<ops::Sgd> s(shape);
  const DType state = sgd_state(s);
  if (!all_double(s, {"lr", "keep"}) || !has_chance(s, state)) return nullptr;
  if (s.has("clip") && s["clip"].dtype != DType::f64) return nullptr;
  if (s.real("momentum") != 0 && !s.has("momentum")) return nullptr;
  return choose_update(s, state, []<class Types>() -> Kernel { return runs_when_bound; });
}

Kernel select_momentum(const OpShape& shape) {
  const ShapeOf<ops::Momentum> s(shape);
  if (!all_double(s, {"clip", "keep"})) return nullptr;
  if (s["m"].dtype == DType::u8)
    return in_eight_bits(s["m"], s["scale"]) && all_double(s, {"step", "seed"}) &&
                   s["gradient"].dtype != DType::f64
               ? runs_when_bound
               : nullptr;
  return choose_momentum(s, []<class Types>() -> Kernel { return runs_when_bound; });
}

Kernel select_average_weights(const OpShape& shape) {
  const ShapeOf<ops::AverageWeights> s(shape);
  if (!all_double(s, {"step", "keep"})) return nullptr;
  return choose_average(s, []<class Types>() -> Kernel { return runs_when_bound; });
}

template <class Op>
DeviceOp sum_squares_op() {
  return {{Op::kind, select_sum_squares<Op>, sum_squares_workspace_of},
          bind_sum_squares<Op>,
          [](const Launch& a, const Launch& b) { return alike<Op>(a, b, "sum", 0); }};
}

bool merges_counts(const Launch& a, const Launch& b) { return alike<ops::CountNonFinite>(a, b, "keep", 0); }

// Each tensor has a decay and a scale of its own, and one with a state in 8 bits is a launch of its own.
bool merges_adamw(const Launch& a, const Launch& b) {
  using ops::AdamW;
  return ArgsOf<AdamW>(a.args)["m"].dtype != DType::u8 &&
         alike<AdamW>(a, b, "lr", attr_of<AdamW>("weight_decay"));
}
bool merges_sgd(const Launch& a, const Launch& b) {
  return alike<ops::Sgd>(a, b, "lr", attr_of<ops::Sgd>("weight_decay"));
}
bool merges_momentum(const Launch& a, const Launch& b) {
  using ops::Momentum;
  return ArgsOf<Momentum>(a.args)["m"].dtype != DType::u8 &&
         alike<Momentum>(a, b, "clip", std::size(Momentum::attrs));
}
bool merges_averages(const Launch& a, const Launch& b) {
  return alike<ops::AverageWeights>(a, b, "step", std::size(ops::AverageWeights::attrs));
}

}  // namespace

std::vector<DeviceOp> optimizer_ops(const OpChoices&) {
  return {sum_squares_op<ops::SumSquares>(),
          sum_squares_op<ops::SummandSquares>(),
          {{ops::ClipFactor::kind, select_clip_factor}},
          {{ops::CountNonFinite::kind, select_count}, bind_count, merges_counts},
          {{ops::AdamW::kind, select_adamw}, bind_adamw, merges_adamw},
          {{ops::Sgd::kind, select_sgd}, bind_sgd, merges_sgd},
          {{ops::Momentum::kind, select_momentum}, bind_momentum, merges_momentum},
          {{ops::AverageWeights::kind, select_average_weights}, bind_average_weights, merges_averages}};
}

}  // namespace prun::cuda
