// Implements short_conv and its gradients, some channels at a time, of a sample: position by position.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/vector_math.hpp"
#include "prun/ops/short_conv.hpp"
#include "prun/recurrent_state.hpp"
#include "sequence_runs.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

using Index = std::int64_t;

// Is a register for some channels, padded with zeros: all channels pass the same vector code.
template <class C>
struct Lanes {
  alignas(64) C of[block_lanes] = {};
};

// Describes x [batch, seq, channels] and a weight [channels, taps], of which x may have a part. In runs of
// positions, x has those in front of each.
template <class T>
struct Conv {
  using C = Compute<T>;
  Index batch, seq, channels, taps;
  const Tensor *all_x, *all_weight;
  const T *x, *weight;
  const std::int32_t* documents;
  SequenceRuns runs;

  static Conv of(const Tensor& x, const Tensor& weight, const Tensor& documents) {
    return {x.dim[0],
            x.dim[1],
            x.inner(x.rank - 2),
            weight.inner(1),
            &x,
            &weight,
            x.as<const T>(),
            weight.as<const T>(),
            documents.as<const std::int32_t>(),
            SequenceRuns::whole(x.dim[1])};
  }
  // `own` has no more than the runs.
  static Conv of_runs(const Tensor& x, const Tensor& weight, const Tensor& documents, const Tensor& own,
                      Index rows, Index chunks) {
    Conv conv = of(x, weight, documents);
    conv.seq = own.dim[1];
    conv.runs = SequenceRuns::of(own, rows, chunks, conv.taps - 1);
    return conv;
  }
  Index blocks() const { return (channels + block_lanes - 1) / block_lanes; }
  Index lanes(Index channel) const { return std::min<Index>(block_lanes, channels - channel); }
  Index at(Index sample, Index row, Index channel) const { return (sample * seq + row) * channels + channel; }
  // Returns where x has the one that is so many positions before a row.
  Index at_x(Index sample, Index row, Index before, Index channel) const {
    return (sample * (seq + seq / runs.rows * runs.ahead) + runs.with_ahead(row) - before) * channels +
           channel;
  }
  Index start(Index sample, Index row) const { return documents ? documents[sample * seq + row] : 0; }
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
  // Says how many positions before a row's its sum reaches.
  Index reach(Index sample, Index row) const {
    return std::min(taps - 1, runs.position(row) - start(sample, row));
  }
};

template <class C>
void add_product(Lanes<C>& to, const Lanes<C>& a, const Lanes<C>& b) {
#pragma omp simd
  for (int l = 0; l < block_lanes; ++l) to.of[l] += a.of[l] * b.of[l];
}

// Returns the sum in front of silu.
template <class T, class C = Compute<T>>
Lanes<C> sum_at(const Conv<T>& conv, const Lanes<C>* tap, Index sample, Index row, Index channel) {
  Lanes<C> sum;
  for (Index before = conv.reach(sample, row); before >= 0; --before)
    add_product(sum, tap[before], conv.load_lanes(conv.x + conv.at_x(sample, row, before, channel), channel));
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

// Writes the results of a sample's channels.
template <class T>
void convolve(const Conv<T>& conv, const Filter<Compute<T>>& filter, Index sample, Index channel, T* y) {
  for (Index t = 0; t < conv.seq; ++t) {
    auto sum = sum_at(conv, filter.taps, sample, t, channel);
    apply_silu(sum);
    conv.store_lanes(sum, channel, y + conv.at(sample, t, channel));
  }
}

template <class T>
void short_conv(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConv> op(args);
  const Conv<T> conv = Conv<T>::of(op["x"], op["weight"], op["documents"]);
  const Index kept = op["tail"].dim[1];
  for_blocks_of(conv, conv.batch, args, context,
                [&](Index sample, Index channel, const Filter<Compute<T>>& filter) {
                  convolve(conv, filter, sample, channel, op["y"].as<T>());
                  const Index n = conv.lanes(channel), first = std::max<Index>(0, conv.seq - kept);
                  for (Index i = 0; i < kept; ++i) {
                    const Index t =
                        first + (i - first % kept + kept) % kept;  // the position of those kept that is there
                    T* const to = op["tail"].as<T>() + (sample * kept + i) * conv.channels + channel;
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
  const ArgsOf<ops::ShortConvAt> op(args);
  const Conv<T> conv = Conv<T>::of(op["x"], op["weight"], Tensor{});
  const Index kept = op["kept_tail"].dim[1],
              position = static_cast<Index>(*op["position"].as<const double>());
  for_blocks_of(
      conv, conv.batch, args, context, [&](Index sample, Index channel, const Filter<Compute<T>>& filter) {
        const Index n = conv.lanes(channel);
        const auto place = [&](Index at) {
          return op["kept_tail"].as<T>() + (sample * kept + at % kept) * conv.channels + channel;
        };
        for (Index t = 0; t < conv.seq; ++t) {
          std::copy_n(conv.x + conv.at(sample, t, channel), n, place(position + t));
          Lanes<Compute<T>> sum;
          for (Index before = std::min(conv.taps - 1, position + t); before >= 0; --before)
            add_product(sum, filter.taps[before], conv.load_lanes(place(position + t - before), channel));
          apply_silu(sum);
          conv.store_lanes(sum, channel, op["y"].as<T>() + conv.at(sample, t, channel));
        }
        for (Index i = 0; i < kept; ++i)
          std::copy_n(place(i), n, op["tail"].as<T>() + (sample * kept + i) * conv.channels + channel);
      });
}

template <class T>
void short_conv_runs(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvRuns> op(args);
  const Conv<T> conv = Conv<T>::of_runs(op["x"], op["weight"], op["documents"], op["y"], op.integer("rows"),
                                        op.integer("chunks"));
  for_blocks_of(conv, conv.batch, args, context,
                [&](Index sample, Index channel, const Filter<Compute<T>>& filter) {
                  convolve(conv, filter, sample, channel, op["y"].as<T>());
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

// Takes the positions of a run from the last to the first, and gives each one's slope to the inputs that it
// reads, whose sums stand in a ring. What stands in front of the run gets what is left.
template <class T, class C = Compute<T>>
void run_input_grad(const Conv<T>& conv, const Filter<C>& filter, const T* dy, Index sample, Index channel,
                    Index run, T* dx) {
  const Index ahead = conv.runs.ahead, first = run * conv.runs.rows;
  std::fill_n(filter.sums, conv.taps, Lanes<C>{});
  for (Index i = conv.runs.rows - 1; i >= -ahead; --i) {
    if (i >= 0) {
      const auto slope = sum_grad(conv, filter.taps, dy, sample, first + i, channel);
      for (Index before = conv.reach(sample, first + i); before >= 0; --before)
        add_product(filter.sums[(ahead + i - before) % conv.taps], filter.taps[before], slope);
    }
    auto& own = filter.sums[(ahead + i) % conv.taps];
    conv.store_lanes(own, channel,
                     dx + conv.at_x(sample, first + std::max<Index>(i, 0), std::max<Index>(-i, 0), channel));
    own = {};
  }
}

template <class T>
void input_grad_of(const Conv<T>& conv, const Tensor& dy, const Tensor& dx, const KernelArgs& args,
                   const KernelContext& context) {
  for_blocks_of(conv, conv.batch, args, context,
                [&](Index sample, Index channel, const Filter<Compute<T>>& filter) {
                  for (Index run = 0; run < conv.seq / conv.runs.rows; ++run)
                    run_input_grad(conv, filter, dy.as<const T>(), sample, channel, run, dx.as<T>());
                });
}

template <class T>
void short_conv_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvInputGrad> op(args);
  input_grad_of(Conv<T>::of(op["x"], op["weight"], op["documents"]), op["dy"], op["dx"], args, context);
}

template <class T>
void short_conv_runs_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvRunsInputGrad> op(args);
  input_grad_of(Conv<T>::of_runs(op["x"], op["weight"], op["documents"], op["dy"], op.integer("rows"),
                                 op.integer("chunks")),
                op["dy"], op["dx"], args, context);
}

// Adds a sample's sums to the accumulator at a time, as add_column_sums does.
template <class T, class Sum>
void weight_grad_of(const Conv<T>& conv, const Tensor& dy, const Tensor& dweight, bool begins,
                    const KernelArgs& args, const KernelContext& context) {
  if (begins && conv.rows() != conv.channels) std::fill_n(dweight.as<Sum>(), dweight.elements(), Sum(0.0f));
  for_blocks_of(conv, 1, args, context, [&](Index, Index channel, const Filter<Compute<T>>& filter) {
    for (Index sample = 0; sample < conv.batch; ++sample) {
      std::fill_n(filter.sums, conv.taps, Lanes<Compute<T>>{});
      for (Index t = 0; t < conv.seq; ++t) {
        const auto slope = sum_grad(conv, filter.taps, dy.as<const T>(), sample, t, channel);
        for (Index before = conv.reach(sample, t); before >= 0; --before)
          add_product(filter.sums[before], slope,
                      conv.load_lanes(conv.x + conv.at_x(sample, t, before, channel), channel));
      }
      for (Index l = 0; l < conv.lanes(channel); ++l)
        for (Index before = 0; before < conv.taps; ++before) {
          Sum& to = dweight.as<Sum>()[conv.row(channel + l) * conv.taps + conv.taps - 1 - before];
          if (begins && sample == 0)
            store(to, filter.sums[before].of[l]);
          else
            add_to(to, filter.sums[before].of[l]);
        }
    }
  });
}

template <class T, class Sum>
void short_conv_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvWeightGrad> op(args);
  weight_grad_of<T, Sum>(Conv<T>::of(op["x"], op["weight"], op["documents"]), op["dy"], op["dweight"],
                         op.begins("dweight"), args, context);
}

template <class T, class Sum>
void short_conv_runs_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvRunsWeightGrad> op(args);
  weight_grad_of<T, Sum>(Conv<T>::of_runs(op["x"], op["weight"], op["documents"], op["dy"],
                                          op.integer("rows"), op.integer("chunks")),
                         op["dy"], op["dweight"], op.begins("dweight"), args, context);
}

Kernel select_conv(const OpShape& shape) {
  const ShapeOf<ops::ShortConv> s(shape);
  if (!same_type(s, {"x", "weight", "y", "tail"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return short_conv<T>; });
}

Kernel select_at(const OpShape& shape) {
  const ShapeOf<ops::ShortConvAt> s(shape);
  if (!same_type(s, {"x", "weight", "kept_tail", "y", "tail"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return short_conv_at<T>; });
}

Kernel select_input_grad(const OpShape& shape) {
  const ShapeOf<ops::ShortConvInputGrad> s(shape);
  if (!same_type(s, {"dy", "x", "weight", "dx"})) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return short_conv_input_grad<T>; });
}

Kernel select_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ShortConvWeightGrad> s(shape);
  if (!same_type(s, {"dy", "x", "weight"})) return nullptr;
  return choose_accumulation(s["x"].dtype, s["dweight"].dtype,
                             []<class T, class Sum>() -> Kernel { return short_conv_weight_grad<T, Sum>; });
}

// A rank has whole runs.
template <class Op>
bool has_runs(const ShapeOf<Op>& s, OperandOf<Op> own) {
  return s[own].dims[1].extent % s.integer("rows") == 0;
}

Kernel select_runs(const OpShape& shape) {
  const ShapeOf<ops::ShortConvRuns> s(shape);
  if (!same_type(s, {"x", "weight", "y"}) || !has_runs(s, "y")) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return short_conv_runs<T>; });
}

Kernel select_runs_input_grad(const OpShape& shape) {
  const ShapeOf<ops::ShortConvRunsInputGrad> s(shape);
  if (!same_type(s, {"dy", "x", "weight", "dx"}) || !has_runs(s, "dy")) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return short_conv_runs_input_grad<T>; });
}

Kernel select_runs_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ShortConvRunsWeightGrad> s(shape);
  if (!same_type(s, {"dy", "x", "weight"}) || !has_runs(s, "dy")) return nullptr;
  return choose_accumulation(s["x"].dtype, s["dweight"].dtype, []<class T, class Sum>() -> Kernel {
    return short_conv_runs_weight_grad<T, Sum>;
  });
}

}  // namespace

std::vector<KernelDef> short_conv_kernels();
std::vector<KernelDef> short_conv_kernels() {
  return {{ops::ShortConv::kind, select_conv, conv_workspace<1>},
          {ops::ShortConvAt::kind, select_at, conv_workspace<1>},
          {ops::ShortConvInputGrad::kind, select_input_grad, conv_workspace<2>},
          {ops::ShortConvWeightGrad::kind, select_weight_grad, conv_workspace<2>,
           bits_of<ops::ShortConvWeightGrad>("dweight")},
          {ops::ShortConvRuns::kind, select_runs, conv_workspace<1>},
          {ops::ShortConvRunsInputGrad::kind, select_runs_input_grad, conv_workspace<2>},
          {ops::ShortConvRunsWeightGrad::kind, select_runs_weight_grad, conv_workspace<2>,
           bits_of<ops::ShortConvRunsWeightGrad>("dweight")}};
}

}  // namespace prun::cpu::PRUN_ISA
