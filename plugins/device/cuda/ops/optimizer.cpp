// Launches sum_squares, clip_factor, count_non_finite, adamw, sgd, momentum and average_weights. Neighbours
// of one kind become one launch.
#include "cuda/optimizer.hpp"

#include <algorithm>

#include "cuda/check.hpp"
#include "device_op.hpp"

namespace prun::cuda {
namespace {

// Says whether the operands from `from` on are the very same numbers, the operands before it of the same
// types, and the first `attrs` attributes equal.
bool alike(const Launch& a, const Launch& b, int from, int attrs) {
  for (int i = 0; i < a.args.operand_count; ++i) {
    const Tensor &x = a.args.operands[i], &y = b.args.operands[i];
    if (i >= from ? x.data != y.data : x.dtype != y.dtype || !x.data != !y.data) return false;
  }
  for (int i = 0; i < attrs; ++i)
    if (a.args.attrs[i].f != b.args.attrs[i].f) return false;
  return true;
}

template <class T>
Work bind_sum_squares_of(Launches launches) {
  std::vector<Values<T>> tensors;
  for (const Launch& launch : launches)
    tensors.push_back({data<const T>(launch.args, 0), launch.args.operands[0].elements()});
  const KernelArgs& args = launches.front().args;
  return [tensors = std::move(tensors), sum = data<double>(args, 1),
          workspace = args.workspace](Stream stream) { sum_squares<T>(tensors, sum, workspace, stream); };
}

Work bind_sum_squares(Launches launches, Libraries&, Stream) {
  return by_value(launches.front().args.operands[0].dtype,
                  [&]<class T>() -> Work { return bind_sum_squares_of<T>(launches); });
}

void clip_factor(const KernelArgs& args, const KernelContext& context) {
  const ClipFactor numbers{data<const double>(args, 0), data<const double>(args, 1),
                           data<const double>(args, 2), data<double>(args, 3),
                           data<double>(args, 4),       data<double>(args, 5),
                           data<const double>(args, 6)};
  cuda::clip_factor(numbers, args.attrs[0].f, stream_of(context));
}

// In a flat range that several tensors share, each tensor counts its own elements.
template <class T>
CountedValues<T> counted_values(const KernelArgs& args) {
  const Tensor& x = args.operands[0];
  const std::int64_t first = args.attrs[2].i - x.start[0], elements = args.attrs[3].i;
  const std::int64_t from = elements > 0 ? std::max<std::int64_t>(first, 0) : 0;
  const std::int64_t to = elements > 0 ? std::min(first + elements, x.elements()) : x.elements();
  return {data<const T>(args, 0) + from, std::max<std::int64_t>(to - from, 0),
          data<double>(args, 2) + args.attrs[0].i + args.layer * args.attrs[1].i};
}

template <class T>
Work bind_count_of(Launches launches) {
  std::vector<CountedValues<T>> tensors;
  for (const Launch& launch : launches)
    if (const CountedValues<T> values = counted_values<T>(launch.args); values.elements > 0)
      tensors.push_back(values);
  return [tensors = std::move(tensors), keep = data<const double>(launches.front().args, 1)](Stream stream) {
    if (!tensors.empty()) count_non_finite<T>(tensors, keep, stream);
  };
}

Work bind_count(Launches launches, Libraries&, Stream) {
  return by_value(launches.front().args.operands[0].dtype,
                  [&]<class T>() -> Work { return bind_count_of<T>(launches); });
}

// Calls add(first element, count, numbers of the elements) for what a launch updates: tensor by tensor where
// the update rounds by chance.
template <class Types, class Add>
void each_update(const KernelArgs& args, Add add) {
  if constexpr (Types::chancy_states || Types::chancy_weights) {
    check_updates(args);
    for (std::int32_t i = 0; i < args.update_count; ++i)
      add(args.updates[i].begin, args.updates[i].count, args.updates[i]);
  } else {
    add(0, args.operands[0].elements(), TensorElements{});
  }
}

// Returns element `at` of an operand that may be absent.
template <class T>
T* from(const KernelArgs& args, int operand, std::int64_t at) {
  if constexpr (std::is_void_v<T>)
    return nullptr;
  else
    return args.operands[operand].data ? data<T>(args, operand) + at : nullptr;
}

// Each tensor is a launch of its own, since its scales begin with its blocks.
template <class Types>
Work bind_adamw_in_8_bits(Launches launches) {
  std::vector<EightBitAdamTensor<Types>> tensors;
  const KernelArgs& args = launches.front().args;
  check_updates(args);
  for (std::int32_t i = 0; i < args.update_count; ++i) {
    const TensorElements& numbers = args.updates[i];
    const std::int64_t at = numbers.begin, first = at / eight_bit_block;
    PRUN_CHECK(at % eight_bit_block == 0 && numbers.count % eight_bit_block == 0, "a part cuts a block");
    tensors.push_back(
        {from<typename Types::Parameter>(args, 0, at), from<typename Types::Master>(args, 1, at),
         from<const typename Types::Gradient>(args, 2, at), data<std::uint8_t>(args, 3) + at,
         data<std::uint8_t>(args, 4) + at, data<float>(args, 10) + first, data<float>(args, 11) + first,
         numbers.count, args.attrs[3].f, args.attrs[4].f, numbers});
  }
  const AdamSettings settings{args.attrs[0].f,
                              args.attrs[1].f,
                              args.attrs[2].f,
                              data<const double>(args, 5),
                              data<const double>(args, 6),
                              data<const double>(args, 7),
                              data<const double>(args, 8),
                              data<const double>(args, 9)};
  return [tensors = std::move(tensors), settings](Stream stream) {
    for (const EightBitAdamTensor<Types>& tensor : tensors) adamw_in_8_bits<Types>(tensor, settings, stream);
  };
}

template <class Types>
Work bind_adamw_of(Launches launches) {
  std::vector<AdamTensor<Types>> tensors;
  for (const Launch& launch : launches) {
    const KernelArgs& args = launch.args;
    each_update<Types>(args, [&](std::int64_t at, std::int64_t count, const TensorElements& numbers) {
      tensors.push_back(
          {from<typename Types::Parameter>(args, 0, at), from<typename Types::Master>(args, 1, at),
           from<const typename Types::Gradient>(args, 2, at), from<typename Types::State>(args, 3, at),
           from<typename Types::State>(args, 4, at), count, args.attrs[3].f, args.attrs[4].f, numbers});
    });
  }
  const KernelArgs& args = launches.front().args;
  const AdamSettings settings{args.attrs[0].f,
                              args.attrs[1].f,
                              args.attrs[2].f,
                              data<const double>(args, 5),
                              data<const double>(args, 6),
                              data<const double>(args, 7),
                              data<const double>(args, 8),
                              data<const double>(args, 9)};
  return [tensors = std::move(tensors), settings](Stream stream) { adamw<Types>(tensors, settings, stream); };
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
  const KernelArgs& args = launches.front().args;
  if (args.operands[3].dtype == DType::u8)
    return choose_update(types_of(args), DType::f32,
                         [&]<class Types>() -> Work { return bind_eight_bits<Types>(launches); });
  return choose_update(types_of(args), args.operands[3].dtype,
                       [&]<class Types>() -> Work { return bind_adamw_of<Types>(launches); });
}

MomentumSettings momentum_settings(const KernelArgs& args) {
  return {args.attrs[0].f,
          args.attrs[1].f,
          args.attrs[2].f != 0,
          data<const double>(args, 4),
          data<const double>(args, 5),
          data<const double>(args, 6),
          data<const double>(args, 7)};
}

template <class Types>
Work bind_sgd_of(Launches launches) {
  std::vector<SgdTensor<Types>> tensors;
  for (const Launch& launch : launches) {
    const KernelArgs& args = launch.args;
    each_update<Types>(args, [&](std::int64_t at, std::int64_t count, const TensorElements& numbers) {
      tensors.push_back(
          {from<typename Types::Parameter>(args, 0, at), from<typename Types::Master>(args, 1, at),
           from<const typename Types::Gradient>(args, 2, at), from<typename Types::State>(args, 3, at), count,
           args.attrs[1].f, args.attrs[2].f, numbers});
    });
  }
  const KernelArgs& args = launches.front().args;
  const SgdSettings settings{args.attrs[0].f,
                             data<const double>(args, 4),
                             data<const double>(args, 5),
                             data<const double>(args, 6),
                             data<const double>(args, 7),
                             data<const double>(args, 8)};
  return [tensors = std::move(tensors), settings](Stream stream) { sgd<Types>(tensors, settings, stream); };
}

// Returns the type of its momentum or, where it keeps none, the type that this would have.
DType sgd_state(const OpShape& s) {
  return s.operand[3].present ? s.operand[3].dtype : state_type(s.operand[2]);
}

Work bind_sgd(Launches launches, Libraries&, Stream) {
  const OpShape types = types_of(launches.front().args);
  return choose_update(types, sgd_state(types),
                       [&]<class Types>() -> Work { return bind_sgd_of<Types>(launches); });
}

template <class Types>
Work bind_momentum_of(Launches launches) {
  std::vector<MomentumTensor<Types>> tensors;
  for (const Launch& launch : launches) {
    const KernelArgs& args = launch.args;
    each_update<Types>(args, [&](std::int64_t at, std::int64_t count, const TensorElements& numbers) {
      tensors.push_back({from<const typename Types::Gradient>(args, 1, at),
                         from<typename Types::State>(args, 2, at), from<typename Types::C>(args, 3, at),
                         count, numbers});
    });
  }
  return [tensors = std::move(tensors), settings = momentum_settings(launches.front().args)](Stream stream) {
    momentum<Types>(tensors, settings, stream);
  };
}

template <class Gradient>
Work bind_momentum_in_8_bits(const KernelArgs& args) {
  check_updates(args);
  std::vector<EightBitMomentumTensor<Gradient>> tensors;
  for (std::int32_t i = 0; i < args.update_count; ++i) {
    const TensorElements& numbers = args.updates[i];
    const std::int64_t at = numbers.begin;
    PRUN_CHECK(at % eight_bit_block == 0 && numbers.count % eight_bit_block == 0, "a part cuts a block");
    tensors.push_back({data<const Gradient>(args, 1) + at, data<std::uint8_t>(args, 2) + at,
                       data<float>(args, 8) + at / eight_bit_block, data<float>(args, 3) + at, numbers.count,
                       numbers});
  }
  return [tensors = std::move(tensors), settings = momentum_settings(args), all = data<float>(args, 3),
          bytes = static_cast<std::size_t>(args.operands[3].elements()) * sizeof(float)](Stream stream) {
    check(cudaMemsetAsync(all, 0, bytes, stream), "cudaMemsetAsync");
    for (const EightBitMomentumTensor<Gradient>& tensor : tensors)
      momentum_in_8_bits<Gradient>(tensor, settings, stream);
  };
}

Work bind_momentum(Launches launches, Libraries&, Stream) {
  const KernelArgs& args = launches.front().args;
  if (args.operands[2].dtype == DType::u8)
    return args.operands[1].dtype == DType::bf16 ? bind_momentum_in_8_bits<bf16>(args)
                                                 : bind_momentum_in_8_bits<float>(args);
  return choose_momentum(types_of(args),
                         [&]<class Types>() -> Work { return bind_momentum_of<Types>(launches); });
}

template <class Types>
Work bind_average_of(Launches launches) {
  std::vector<AveragedTensor<Types>> tensors;
  for (const Launch& launch : launches)
    tensors.push_back({from<const typename Types::Parameter>(launch.args, 0, 0),
                       from<const typename Types::Master>(launch.args, 1, 0),
                       from<typename Types::C>(launch.args, 2, 0), launch.args.operands[0].elements()});
  const KernelArgs& args = launches.front().args;
  return [tensors = std::move(tensors), decay = args.attrs[0].f, step = data<const double>(args, 3),
          keep = data<const double>(args, 4)](Stream stream) {
    average_weights<Types>(tensors, decay, step, keep, stream);
  };
}

Work bind_average_weights(Launches launches, Libraries&, Stream) {
  return choose_average(types_of(launches.front().args),
                        [&]<class Types>() -> Work { return bind_average_of<Types>(launches); });
}

std::int64_t sum_squares_workspace_of(const OpShape&, std::int32_t) { return sum_squares_workspace(); }

Kernel select_sum_squares(const OpShape& s) {
  if (!all_double(s, 1, 2)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_count(const OpShape& s) {
  if (!all_double(s, 1, 3)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_clip_factor(const OpShape& s) {
  const bool scale = !s.operand[6].present || all_double(s, 6, 7);
  return all_double(s, 0, 6) && scale ? clip_factor : nullptr;
}

Kernel select_adamw(const OpShape& s) {
  if (s.operand[3].dtype == DType::u8) {
    if (!in_eight_bits(s, 3, 10) || !in_eight_bits(s, 4, 11) || !all_double(s, 5, 10)) return nullptr;
    return choose_update(s, DType::f32, []<class Types>() -> Kernel { return runs_when_bound; });
  }
  const DType state = s.operand[3].dtype;
  if (!same_type(s, {3, 4}) || !all_double(s, 5, 9) || !has_chance(s, state, 6, 9)) return nullptr;
  return choose_update(s, state, []<class Types>() -> Kernel { return runs_when_bound; });
}

// Momentum without a buffer to keep it in is refused.
Kernel select_sgd(const OpShape& s) {
  const DType state = sgd_state(s);
  if (!all_double(s, 4, 5) || !all_double(s, 6, 7) || !has_chance(s, state, 7, 8)) return nullptr;
  if (s.operand[5].present && s.operand[5].dtype != DType::f64) return nullptr;
  if (s.attrs[0].f != 0 && !s.operand[3].present) return nullptr;
  return choose_update(s, state, []<class Types>() -> Kernel { return runs_when_bound; });
}

Kernel select_momentum(const OpShape& s) {
  if (!all_double(s, 4, 6)) return nullptr;
  if (s.operand[2].dtype == DType::u8)
    return in_eight_bits(s, 2, 8) && all_double(s, 6, 8) && s.operand[1].dtype != DType::f64 ? runs_when_bound
                                                                                             : nullptr;
  return choose_momentum(s, []<class Types>() -> Kernel { return runs_when_bound; });
}

Kernel select_average_weights(const OpShape& s) {
  if (!all_double(s, 3, 5)) return nullptr;
  return choose_average(s, []<class Types>() -> Kernel { return runs_when_bound; });
}

bool merges_updates(const Launch& a, const Launch& b, int from, int attrs, int state) {
  return a.args.operands[state].dtype != DType::u8 && alike(a, b, from, attrs);
}

}  // namespace

std::vector<DeviceOp> optimizer_ops(const OpChoices&) {
  return {{{"sum_squares", select_sum_squares, sum_squares_workspace_of},
           bind_sum_squares,
           [](const Launch& a, const Launch& b) { return alike(a, b, 1, 0); }},
          {{"summand_squares", select_sum_squares, sum_squares_workspace_of},
           bind_sum_squares,
           [](const Launch& a, const Launch& b) { return alike(a, b, 1, 0); }},
          {{"clip_factor", select_clip_factor}},
          {{"count_non_finite", select_count},
           bind_count,
           [](const Launch& a, const Launch& b) { return alike(a, b, 1, 0); }},
          {{"adamw", select_adamw},
           bind_adamw,
           [](const Launch& a, const Launch& b) { return merges_updates(a, b, 5, 3, 3); }},
          {{"sgd", select_sgd}, bind_sgd, [](const Launch& a, const Launch& b) { return alike(a, b, 4, 1); }},
          {{"momentum", select_momentum},
           bind_momentum,
           [](const Launch& a, const Launch& b) { return merges_updates(a, b, 4, 3, 2); }},
          {{"average_weights", select_average_weights},
           bind_average_weights,
           [](const Launch& a, const Launch& b) { return alike(a, b, 3, 1); }}};
}

}  // namespace prun::cuda
