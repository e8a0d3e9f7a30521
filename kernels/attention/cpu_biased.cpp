// Implements attention_biased and its gradient, a row of scores at a time. Each head is computed by one
// thread, so that the table's gradient is summed in the same order whatever the threads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "prun/ops/attention_biased.hpp"
#include "prun/relative_buckets.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> attention_biased_kernels();

namespace {

// Describes an op whose queries are [batch, seq, heads, queries, width].
struct Biased {
  std::int64_t batch, seq, heads, queries, width, buckets;
  bool causal;
  std::int64_t distance;
  double scale;

  template <class Op>
  explicit Biased(const ArgsOf<Op>& op)
      : batch(op["q"].dim[0]),
        seq(op["q"].dim[1]),
        heads(op["q"].dim[2]),
        queries(op["q"].dim[3]),
        width(op["q"].dim[4]),
        buckets(op["table"].dim[1]),
        causal(op.integer("causal") != 0),
        distance(op.integer("distance")),
        scale(op.real("scale")) {}

  std::int64_t keys(std::int64_t row) const { return causal ? row + 1 : seq; }
  // These return the places of queries, and of keys and values.
  std::int64_t q_at(std::int64_t b, std::int64_t row, std::int64_t h, std::int64_t n) const {
    return (((b * seq + row) * heads + h) * queries + n) * width;
  }
  std::int64_t k_at(std::int64_t b, std::int64_t row, std::int64_t h) const {
    return ((b * seq + row) * heads + h) * width;
  }
  std::int64_t lse_at(std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t row) const {
    return ((b * heads + h) * queries + n) * seq + row;
  }

  std::int64_t bucket(std::int64_t row, std::int64_t key) const {
    return RelativeBuckets{buckets, distance, causal}.of(row, key);
  }
};

// Holds a head's rows: which bucket each distance has, scores, and their gradients.
template <class C>
struct BiasedRows {
  std::int64_t* of_distance;  // [2 seq - 1], by key - query + seq - 1
  C *scores, *row, *dtable;
  C *dk, *dv;  // [seq, width]

  BiasedRows(Scratch scratch, std::int64_t seq, std::int64_t width, std::int64_t buckets)
      : of_distance(scratch.take<std::int64_t>(2 * seq - 1)),
        scores(scratch.take<C>(seq)),
        row(scratch.take<C>(width)),
        dtable(scratch.take<C>(buckets)),
        dk(scratch.take<C>(seq * width)),
        dv(scratch.take<C>(seq * width)),
        bytes(scratch.bytes()) {}
  // Takes the part of the launch's workspace that belongs to a head.
  BiasedRows(void* workspace, std::int64_t head, const Biased& l)
      : BiasedRows(Scratch(static_cast<std::byte*>(workspace) +
                           head * BiasedRows(Scratch(), l.seq, l.width, l.buckets).bytes),
                   l.seq, l.width, l.buckets) {
    find_buckets(l);
  }

  void find_buckets(const Biased& l) {
    for (std::int64_t away = 1 - l.seq; away < l.seq; ++away)
      of_distance[away + l.seq - 1] =
          l.bucket(std::max<std::int64_t>(0, -away), std::max<std::int64_t>(0, away));
  }
  std::int64_t bucket(const Biased& l, std::int64_t query, std::int64_t key) const {
    return of_distance[key - query + l.seq - 1];
  }

  std::int64_t bytes;
};

template <class C, class T>
C dot(const T* a, const T* b, std::int64_t n) {
  C sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<C>(load(a[i])) * static_cast<C>(load(b[i]));
  return sum;
}

template <class C, class T>
void add_times(C* to, C factor, const T* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * static_cast<C>(load(from[i]));
}

// Computes the scores of a row, bias and scale included.
template <class C, class T, class Op>
void score(const Biased& l, const BiasedRows<C>& rows, const ArgsOf<Op>& op, std::int64_t b, std::int64_t h,
           std::int64_t n, std::int64_t row) {
  const T *q = op["q"].template as<const T>() + l.q_at(b, row, h, n), *k = op["k"].template as<const T>(),
          *table = op["table"].template as<const T>() + h * l.buckets;
  for (std::int64_t key = 0; key < l.keys(row); ++key)
    rows.scores[key] = static_cast<C>(l.scale) * dot<C>(q, k + l.k_at(b, key, h), l.width) +
                       static_cast<C>(load(table[rows.bucket(l, row, key)]));
}

template <class T>
void attention_biased(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::AttentionBiased> op(args);
  const Biased l(op);
  parallel(*context.workers, l.heads, [&](std::int64_t h) {
    const BiasedRows<C> rows(args.workspace, h, l);
    for (std::int64_t b = 0; b < l.batch; ++b)
      for (std::int64_t n = 0; n < l.queries; ++n)
        for (std::int64_t row = 0; row < l.seq; ++row) {
          score<C, T>(l, rows, op, b, h, n, row);
          const std::int64_t keys = l.keys(row);
          const C largest = *std::max_element(rows.scores, rows.scores + keys);
          C sum = 0, *const y = rows.row;
          std::fill_n(y, l.width, C{0});
          for (std::int64_t key = 0; key < keys; ++key) {
            const C weight = std::exp(rows.scores[key] - largest);
            sum += weight;
            add_times(y, weight, op["v"].as<const T>() + l.k_at(b, key, h), l.width);
          }
          T* const out = op["y"].as<T>() + l.q_at(b, row, h, n);
          for (std::int64_t i = 0; i < l.width; ++i) store(out[i], y[i] / sum);
          op["lse"].as<C>()[l.lse_at(b, h, n, row)] = largest + std::log(sum);
        }
  });
}

// Adds a row's part to dk, dv and dtable, and writes its dq.
template <class C, class T>
void add_row(const Biased& l, const BiasedRows<C>& rows, const ArgsOf<ops::AttentionBiasedGrad>& op,
             std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t row) {
  C* const dq = rows.row;
  const std::int64_t at = l.q_at(b, row, h, n), keys = l.keys(row);
  const T *dy = op["dy"].as<const T>() + at, *q = op["q"].as<const T>() + at, *y = op["y"].as<const T>() + at;
  score<C, T>(l, rows, op, b, h, n, row);
  const C lse = op["lse"].as<const C>()[l.lse_at(b, h, n, row)], scale = static_cast<C>(l.scale),
          mean = dot<C>(dy, y, l.width);
  std::fill_n(dq, l.width, C{0});
  for (std::int64_t key = 0; key < keys; ++key) {
    const std::int64_t k_at = l.k_at(b, key, h);
    const C weight = std::exp(rows.scores[key] - lse);
    const C gradient = weight * (dot<C>(dy, op["v"].as<const T>() + k_at, l.width) - mean);
    rows.dtable[rows.bucket(l, row, key)] += gradient;
    add_times(rows.dv + key * l.width, weight, dy, l.width);
    add_times(rows.dk + key * l.width, scale * gradient, q, l.width);
    add_times(dq, scale * gradient, op["k"].as<const T>() + k_at, l.width);
  }
  T* const out = op["dq"].as<T>() + at;
  for (std::int64_t i = 0; i < l.width; ++i) store(out[i], dq[i]);
}

template <class T>
void attention_biased_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::AttentionBiasedGrad> op(args);
  const Biased l(op);
  parallel(*context.workers, l.heads, [&](std::int64_t h) {
    const BiasedRows<C> rows(args.workspace, h, l);
    std::fill_n(rows.dtable, l.buckets, C{0});
    for (std::int64_t b = 0; b < l.batch; ++b) {
      std::fill_n(rows.dk, l.seq * l.width, C{0});
      std::fill_n(rows.dv, l.seq * l.width, C{0});
      for (std::int64_t n = 0; n < l.queries; ++n)
        for (std::int64_t row = 0; row < l.seq; ++row) add_row<C, T>(l, rows, op, b, h, n, row);
      for (std::int64_t key = 0; key < l.seq; ++key)
        for (std::int64_t i = 0; i < l.width; ++i) {
          store(op["dk"].as<T>()[l.k_at(b, key, h) + i], rows.dk[key * l.width + i]);
          store(op["dv"].as<T>()[l.k_at(b, key, h) + i], rows.dv[key * l.width + i]);
        }
    }
    for (std::int64_t i = 0; i < l.buckets; ++i)
      store(op["dtable"].as<T>()[h * l.buckets + i], rows.dtable[i]);
  });
}

template <class Op>
std::int64_t workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<Op> s(shape);
  const Dim* const dims = s["q"].dims;
  const auto bytes = [&]<class C>(C) {
    return dims[2].extent *
           BiasedRows<C>(Scratch(), dims[1].extent, dims[4].extent, s["table"].dims[1].extent).bytes;
  };
  return s["q"].dtype == DType::f64 ? bytes(double{}) : bytes(float{});
}

Kernel select_forward(const OpShape& shape) {
  const ShapeOf<ops::AttentionBiased> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"q", "k", "v", "table", "y"}) || s["lse"].dtype != OpShape::statistics(type))
    return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return attention_biased<T>; });
}

Kernel select_backward(const OpShape& shape) {
  const ShapeOf<ops::AttentionBiasedGrad> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"dy", "q", "k", "v", "table", "y", "dq", "dk", "dv", "dtable"}) ||
      s["lse"].dtype != OpShape::statistics(type))
    return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return attention_biased_grad<T>; });
}

}  // namespace

std::vector<KernelDef> attention_biased_kernels() {
  using namespace ops;
  return {{AttentionBiased::kind, select_forward, workspace<AttentionBiased>},
          {AttentionBiasedGrad::kind, select_backward, workspace<AttentionBiasedGrad>}};
}

}  // namespace prun::cpu::PRUN_ISA
