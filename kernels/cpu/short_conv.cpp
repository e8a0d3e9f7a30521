// Implements short_conv and its gradients, some channels at a time, of a sample: position by position.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/vector_math.hpp"
#include "prun/recurrent_state.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

using Index = std::int64_t;

// Is a register for some channels, padded with zeros: all channels pass the same vector code.
template <class C>
struct Lanes {
  alignas(64) C of[block_lanes] = {};
};

// Describes x [batch, seq, channels] and a weight [channels, taps], of which x may have a part.
template <class T>
struct Conv {
  using C = Compute<T>;
  Index batch, seq, channels, taps;
  const Tensor *all_x, *all_weight;
  const T *x, *weight;
  const std::int32_t* documents;

  static Conv of(const Tensor& x, const Tensor& weight, const Tensor& documents) {
    return {x.dim[0],
            x.dim[1],
            x.inner(x.rank - 2),
            weight.inner(1),
            &x,
            &weight,
            x.as<const T>(),
            weight.as<const T>(),
            documents.as<const std::int32_t>()};
  }
  Index blocks() const { return (channels + block_lanes - 1) / block_lanes; }
  Index lanes(Index channel) const { return std::min<Index>(block_lanes, channels - channel); }
  Index at(Index sample, Index position, Index channel) const {
    return (sample * seq + position) * channels + channel;
  }
  Index start(Index sample, Index position) const {
    return documents ? documents[sample * seq + position] : 0;
  }
  Lanes<C> load_lanes(const T* from, Index channel) const {
    Lanes<C> to;
    const Index n = lanes(channel);
    if (n == block_lanes) {
#pragma omp simd
      for (int l = 0; l < block_lanes; ++l) to.of[l] = load(from[l]);
    } else {
      for (Index l = 0; l < n; ++l) to.of[l] = load(from[l]);
    }
    return to;
  }
  void store_lanes(const Lanes<C>& from, Index channel, T* to) const {
    const Index n = lanes(channel);
    for (Index l = 0; l < n; ++l) store(to[l], from.of[l]);
  }
  // Returns a channel's row of the weight.
  Index row(Index channel) const {
    Index row = 0, width = 1;
    for (int d = all_x->rank - 1; d >= 2; --d) {
      const Index own = all_x->dim[d], all = all_weight->dim[d - 2];
      row += (channel % own + all_x->start[d] - all_weight->start[d - 2]) * width;
      channel /= own;
      width *= all;
    }
    return row;
  }
  Index rows() const { return all_weight->outer(2); }
  // Fills the factors of inputs, by how many positions before they are.
  void load_taps(Index channel, Lanes<C>* to) const {
    const Index n = lanes(channel);
    for (Index before = 0; before < taps; ++before) {
      to[before] = {};
      for (Index l = 0; l < n; ++l)
        to[before].of[l] = load(weight[row(channel + l) * taps + taps - 1 - before]);
    }
  }
  // Says how many positions before a position its sum reaches.
  Index reach(Index sample, Index position) const {
    return std::min(taps - 1, position - start(sample, position));
  }
};

template <class C>
void add_product(Lanes<C>& to, const Lanes<C>& a, const Lanes<C>& b) {
#pragma omp simd
  for (int l = 0; l < block_lanes; ++l) to.of[l] += a.of[l] * b.of[l];
}

// Returns the sum in front of silu.
template <class T, class C = Compute<T>>
Lanes<C> sum_at(const Conv<T>& conv, const Lanes<C>* tap, Index sample, Index position, Index channel) {
  Lanes<C> sum;
  for (Index before = conv.reach(sample, position); before >= 0; --before)
    add_product(sum, tap[before],
                conv.load_lanes(conv.x + conv.at(sample, position - before, channel), channel));
  return sum;
}

template <class C>
void apply_silu(Lanes<C>& x) {
#pragma omp simd
  for (int l = 0; l < block_lanes; ++l) x.of[l] *= sigmoid(x.of[l]).value;
}

// Has the taps of some channels, and as many registers beside them.
template <class C>
struct Filter {
  Lanes<C>*taps, *sums;
};

// Calls body(sample, channel, filter) for each block of channels of each sample, or of all of them together
// where `samples` is 1.
template <class T, class Body>
void for_blocks_of(const Conv<T>& conv, Index samples, const KernelArgs& args, const KernelContext& context,
                   const Body& body) {
  using C = Compute<T>;
  auto* const room =
      reinterpret_cast<Lanes<C>*>((reinterpret_cast<std::uintptr_t>(args.workspace) + 63) / 64 * 64);
  parallel(*context.workers, samples * conv.blocks(), [&](Index i) {
    Lanes<C>* const own = room + i % context.workers->count * 2 * conv.taps;
    const Index channel = i % conv.blocks() * block_lanes;
    conv.load_taps(channel, own);
    body(i / conv.blocks(), channel, Filter<C>{own, own + conv.taps});
  });
}

template <int weight>
Index conv_workspace(const OpShape& s, std::int32_t threads) {
  const OperandShape& w = s.operand[weight];
  return threads * 2 * w.dims[w.rank - 1].extent * static_cast<Index>(sizeof(Lanes<double>)) + 64;
}

template <class T>
void short_conv(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const Conv<T> conv = Conv<T>::of(o[0], o[1], o[4]);
  const Index kept = o[3].dim[1];
  for_blocks_of(conv, conv.batch, args, context,
                [&](Index sample, Index channel, const Filter<Compute<T>>& filter) {
                  for (Index t = 0; t < conv.seq; ++t) {
                    auto sum = sum_at(conv, filter.taps, sample, t, channel);
                    apply_silu(sum);
                    conv.store_lanes(sum, channel, o[2].as<T>() + conv.at(sample, t, channel));
                  }
                  const Index n = conv.lanes(channel), first = std::max<Index>(0, conv.seq - kept);
                  for (Index i = 0; i < kept; ++i) {
                    const Index t =
                        first + (i - first % kept + kept) % kept;  // the position of those kept that is there
                    T* const to = o[3].as<T>() + (sample * kept + i) * conv.channels + channel;
                    if (t < conv.seq)
                      std::copy_n(conv.x + conv.at(sample, t, channel), n, to);
                    else
                      std::fill_n(to, n, T(0.0f));
                  }
                });
}

// Puts this call's inputs among those kept, from which all sums are taken.
template <class T>
void short_conv_at(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const Conv<T> conv = Conv<T>::of(o[0], o[1], Tensor{});
  const Index kept = o[3].dim[1], position = static_cast<Index>(*o[2].as<const double>());
  for_blocks_of(
      conv, conv.batch, args, context, [&](Index sample, Index channel, const Filter<Compute<T>>& filter) {
        const Index n = conv.lanes(channel);
        const auto place = [&](Index at) {
          return o[3].as<T>() + (sample * kept + at % kept) * conv.channels + channel;
        };
        for (Index t = 0; t < conv.seq; ++t) {
          std::copy_n(conv.x + conv.at(sample, t, channel), n, place(position + t));
          Lanes<Compute<T>> sum;
          for (Index before = std::min(conv.taps - 1, position + t); before >= 0; --before)
            add_product(sum, filter.taps[before], conv.load_lanes(place(position + t - before), channel));
          apply_silu(sum);
          conv.store_lanes(sum, channel, o[4].as<T>() + conv.at(sample, t, channel));
        }
        for (Index i = 0; i < kept; ++i)
          std::copy_n(place(i), n, o[5].as<T>() + (sample * kept + i) * conv.channels + channel);
      });
}

// Returns the gradient of the sum in front of silu.
template <class T, class C = Compute<T>>
Lanes<C> sum_grad(const Conv<T>& conv, const Lanes<C>* tap, const T* dy, Index sample, Index position,
                  Index channel) {
  Lanes<C> sum = sum_at(conv, tap, sample, position, channel);
  const Lanes<C> d = conv.load_lanes(dy + conv.at(sample, position, channel), channel);
#pragma omp simd
  for (int l = 0; l < block_lanes; ++l) {
    const Sigmoid<C> s = sigmoid(sum.of[l]);
    sum.of[l] = d.of[l] * s.value * (C(1) + sum.of[l] * s.rest);
  }
  return sum;
}

// Takes positions from the last to the first, and gives each one's slope to the inputs that it reads, whose
// sums stand in a ring.
template <class T>
void short_conv_input_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const Conv<T> conv = Conv<T>::of(o[1], o[2], o[3]);
  for_blocks_of(conv, conv.batch, args, context,
                [&](Index sample, Index channel, const Filter<Compute<T>>& filter) {
                  std::fill_n(filter.sums, conv.taps, Lanes<Compute<T>>{});
                  for (Index t = conv.seq - 1; t >= 0; --t) {
                    const auto slope = sum_grad(conv, filter.taps, o[0].as<const T>(), sample, t, channel);
                    for (Index before = conv.reach(sample, t); before >= 0; --before)
                      add_product(filter.sums[(t - before) % conv.taps], filter.taps[before], slope);
                    auto& own = filter.sums[t % conv.taps];
                    conv.store_lanes(own, channel, o[4].as<T>() + conv.at(sample, t, channel));
                    own = {};
                  }
                });
}

// Adds a sample's sums to the accumulator at a time, as add_column_sums does.
template <class T, class Sum>
void short_conv_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const Conv<T> conv = Conv<T>::of(o[1], o[2], o[3]);
  const bool begins = args.begins(4);
  if (begins && conv.rows() != conv.channels) std::fill_n(o[4].as<Sum>(), o[4].elements(), Sum(0.0f));
  for_blocks_of(conv, 1, args, context, [&](Index, Index channel, const Filter<Compute<T>>& filter) {
    for (Index sample = 0; sample < conv.batch; ++sample) {
      std::fill_n(filter.sums, conv.taps, Lanes<Compute<T>>{});
      for (Index t = 0; t < conv.seq; ++t) {
        const auto slope = sum_grad(conv, filter.taps, o[0].as<const T>(), sample, t, channel);
        for (Index before = conv.reach(sample, t); before >= 0; --before)
          add_product(filter.sums[before], slope,
                      conv.load_lanes(conv.x + conv.at(sample, t - before, channel), channel));
      }
      for (Index l = 0; l < conv.lanes(channel); ++l)
        for (Index before = 0; before < conv.taps; ++before) {
          Sum& to = o[4].as<Sum>()[conv.row(channel + l) * conv.taps + conv.taps - 1 - before];
          if (begins && sample == 0)
            store(to, filter.sums[before].of[l]);
          else
            add_to(to, filter.sums[before].of[l]);
        }
    }
  });
}

Kernel select_conv(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return short_conv<T>; });
}

Kernel select_at(const OpShape& s) {
  if (!same_type(s, {0, 1, 3, 4, 5})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return short_conv_at<T>; });
}

Kernel select_input_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 4})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return short_conv_input_grad<T>; });
}

Kernel select_weight_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_accumulation(s.operand[1].dtype, s.operand[4].dtype,
                             []<class T, class Sum>() -> Kernel { return short_conv_weight_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> short_conv_kernels();
std::vector<KernelDef> short_conv_kernels() {
  return {{"short_conv", select_conv, conv_workspace<1>},
          {"short_conv_at", select_at, conv_workspace<1>},
          {"short_conv_input_grad", select_input_grad, conv_workspace<2>},
          {"short_conv_weight_grad", select_weight_grad, conv_workspace<2>, 1u << 4}};
}

}  // namespace prun::cpu::PRUN_ISA
