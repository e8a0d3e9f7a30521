// Implements attention_biased, at some positions too, and its gradient, a row of scores at a time. Each head
// is computed by one thread, so that the table's gradient is summed in the same order whatever the threads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/cpu_kept.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "prun/ops/attention_biased.hpp"
#include "prun/relative_buckets.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> attention_biased_kernels();

namespace {

// Describes an op whose queries are [batch, seq, heads, queries, width], beside keys of `all` positions. The
// first query is that of position `first`.
struct Biased {
  std::int64_t batch, seq, heads, queries, width, buckets;
  bool causal;
  std::int64_t distance;
  double scale;
  std::int64_t all = seq, first = 0;

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

  std::int64_t keys(std::int64_t row) const { return causal ? first + row + 1 : all; }
  // These return the places of queries, and of keys and values.
  std::int64_t q_at(std::int64_t b, std::int64_t row, std::int64_t h, std::int64_t n) const {
    return (((b * seq + row) * heads + h) * queries + n) * width;
  }
  std::int64_t k_at(std::int64_t b, std::int64_t row, std::int64_t h) const {
    return ((b * all + row) * heads + h) * width;
  }
  std::int64_t lse_at(std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t row) const {
    return ((b * heads + h) * queries + n) * seq + row;
  }

  // Returns the bucket of keys that lie so far behind their query, or in front of it.
  std::int64_t bucket(std::int64_t away) const {
    return RelativeBuckets{buckets, distance, causal}.of(std::max<std::int64_t>(0, -away),
                                                         std::max<std::int64_t>(0, away));
  }
};

// Holds a head's rows: which bucket each distance has, scores, and their gradients.
template <class C>
struct BiasedRows {
  std::int64_t* of_distance;  // [2 all - 1], by key - query + all - 1
  C *scores, *row, *dtable;
  C *dk, *dv;  // [graded, width]

  BiasedRows(Scratch scratch, std::int64_t all, std::int64_t width, std::int64_t buckets, std::int64_t graded)
      : of_distance(scratch.take<std::int64_t>(2 * all - 1)),
        scores(scratch.take<C>(all)),
        row(scratch.take<C>(width)),
        dtable(scratch.take<C>(buckets)),
        dk(scratch.take<C>(graded * width)),
        dv(scratch.take<C>(graded * width)),
        bytes(scratch.bytes()) {}
  // Takes the part of the launch's workspace that belongs to a head. `graded` counts the keys whose gradients
  // it has room for.
  BiasedRows(void* workspace, std::int64_t head, const Biased& l, std::int64_t graded)
      : BiasedRows(Scratch(static_cast<std::byte*>(workspace) +
                           head * BiasedRows(Scratch(), l.all, l.width, l.buckets, graded).bytes),
                   l.all, l.width, l.buckets, graded) {
    find_buckets(l);
  }

  // Finds those of distances that there are.
  void find_buckets(const Biased& l) {
    for (std::int64_t away = 1 - l.first - l.seq; away < (l.causal ? 1 : l.seq); ++away)
      of_distance[away + l.all - 1] = l.bucket(away);
  }
  // Returns the bucket of a key for a row's query.
  std::int64_t bucket(const Biased& l, std::int64_t query_row, std::int64_t key) const {
    return of_distance[key - (l.first + query_row) + l.all - 1];
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

// Points at queries, keys and values, and at the table.
template <class T>
struct BiasedReads {
  const T *q, *k, *v, *table;
};

// Computes the scores of a row, bias and scale included.
template <class C, class T>
void score(const Biased& l, const BiasedRows<C>& rows, const BiasedReads<T>& from, std::int64_t b,
           std::int64_t h, std::int64_t n, std::int64_t row) {
  const T *q = from.q + l.q_at(b, row, h, n), *table = from.table + h * l.buckets;
  for (std::int64_t key = 0; key < l.keys(row); ++key)
    rows.scores[key] = static_cast<C>(l.scale) * dot<C>(q, from.k + l.k_at(b, key, h), l.width) +
                       static_cast<C>(load(table[rows.bucket(l, row, key)]));
}

// Writes a row of y, and the log of its sum of exponentials.
template <class C, class T>
void attend(const Biased& l, const BiasedRows<C>& rows, const BiasedReads<T>& from, std::int64_t b,
            std::int64_t h, std::int64_t n, std::int64_t row, T* out, C* lse) {
  score<C, T>(l, rows, from, b, h, n, row);
  const std::int64_t keys = l.keys(row);
  const C largest = *std::max_element(rows.scores, rows.scores + keys);
  C sum = 0, *const y = rows.row;
  std::fill_n(y, l.width, C{0});
  for (std::int64_t key = 0; key < keys; ++key) {
    const C weight = std::exp(rows.scores[key] - largest);
    sum += weight;
    add_times(y, weight, from.v + l.k_at(b, key, h), l.width);
  }
  for (std::int64_t i = 0; i < l.width; ++i) store(out[i], y[i] / sum);
  *lse = largest + std::log(sum);
}

template <class T, class Op>
void attend_rows(const Biased& l, const ArgsOf<Op>& op, const BiasedReads<T>& from, std::int64_t graded,
                 const KernelContext& context) {
  using C = Compute<T>;
  const KernelArgs& args = op;
  parallel(*context.workers, l.heads, [&](std::int64_t h) {
    const BiasedRows<C> rows(args.workspace, h, l, graded);
    for (std::int64_t b = 0; b < l.batch; ++b)
      for (std::int64_t n = 0; n < l.queries; ++n)
        for (std::int64_t row = 0; row < l.seq; ++row)
          attend<C, T>(l, rows, from, b, h, n, row, op["y"].template as<T>() + l.q_at(b, row, h, n),
                       op["lse"].template as<C>() + l.lse_at(b, h, n, row));
  });
}

template <class T>
void attention_biased(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionBiased> op(args);
  const Biased l(op);
  attend_rows<T>(
      l, op, {op["q"].as<const T>(), op["k"].as<const T>(), op["v"].as<const T>(), op["table"].as<const T>()},
      l.seq, context);
}

template <class T>
void attention_biased_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionBiasedAt> op(args);
  Biased l(op);
  l.first = position_in(op["position"]);
  l.all = op["kept_k"].dim[1];
  keep_rows<T>(op["k"], op["kept_k"], l.first);
  keep_rows<T>(op["v"], op["kept_v"], l.first);
  attend_rows<T>(l, op,
                 {op["q"].as<const T>(), op["kept_k"].as<const T>(), op["kept_v"].as<const T>(),
                  op["table"].as<const T>()},
                 0, context);
}

// Adds a row's part to dk, dv and dtable, and writes its dq.
template <class C, class T>
void add_row(const Biased& l, const BiasedRows<C>& rows, const ArgsOf<ops::AttentionBiasedGrad>& op,
             const BiasedReads<T>& from, std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t row) {
  C* const dq = rows.row;
  const std::int64_t at = l.q_at(b, row, h, n), keys = l.keys(row);
  const T *dy = op["dy"].as<const T>() + at, *q = from.q + at, *y = op["y"].as<const T>() + at;
  score<C, T>(l, rows, from, b, h, n, row);
  const C lse = op["lse"].as<const C>()[l.lse_at(b, h, n, row)], scale = static_cast<C>(l.scale),
          mean = dot<C>(dy, y, l.width);
  std::fill_n(dq, l.width, C{0});
  for (std::int64_t key = 0; key < keys; ++key) {
    const std::int64_t k_at = l.k_at(b, key, h);
    const C weight = std::exp(rows.scores[key] - lse);
    const C gradient = weight * (dot<C>(dy, from.v + k_at, l.width) - mean);
    rows.dtable[rows.bucket(l, row, key)] += gradient;
    add_times(rows.dv + key * l.width, weight, dy, l.width);
    add_times(rows.dk + key * l.width, scale * gradient, q, l.width);
    add_times(dq, scale * gradient, from.k + k_at, l.width);
  }
  T* const out = op["dq"].as<T>() + at;
  for (std::int64_t i = 0; i < l.width; ++i) store(out[i], dq[i]);
}

template <class T>
void attention_biased_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::AttentionBiasedGrad> op(args);
  const Biased l(op);
  const BiasedReads<T> from = {op["q"].as<const T>(), op["k"].as<const T>(), op["v"].as<const T>(),
                               op["table"].as<const T>()};
  parallel(*context.workers, l.heads, [&](std::int64_t h) {
    const BiasedRows<C> rows(args.workspace, h, l, l.seq);
    std::fill_n(rows.dtable, l.buckets, C{0});
    for (std::int64_t b = 0; b < l.batch; ++b) {
      std::fill_n(rows.dk, l.seq * l.width, C{0});
      std::fill_n(rows.dv, l.seq * l.width, C{0});
      for (std::int64_t n = 0; n < l.queries; ++n)
        for (std::int64_t row = 0; row < l.seq; ++row) add_row<C, T>(l, rows, op, from, b, h, n, row);
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

// `graded`: the number of keys whose gradients a head holds.
template <class Op>
std::int64_t bytes_of(const ShapeOf<Op>& s, std::int64_t all, std::int64_t graded) {
  const Dim* const dims = s["q"].dims;
  const auto bytes = [&]<class C>(C) {
    return dims[2].extent *
           BiasedRows<C>(Scratch(), all, dims[4].extent, s["table"].dims[1].extent, graded).bytes;
  };
  return s["q"].dtype == DType::f64 ? bytes(double{}) : bytes(float{});
}

template <class Op>
std::int64_t workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<Op> s(shape);
  const std::int64_t seq = s["q"].dims[1].extent;
  return bytes_of(s, seq, seq);
}

std::int64_t workspace_at(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::AttentionBiasedAt> s(shape);
  return bytes_of(s, s["kept_k"].dims[1].extent, 0);
}

Kernel select_forward(const OpShape& shape) {
  const ShapeOf<ops::AttentionBiased> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"q", "k", "v", "table", "y"}) || s["lse"].dtype != OpShape::statistics(type))
    return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return attention_biased<T>; });
}

Kernel select_at(const OpShape& shape) {
  const ShapeOf<ops::AttentionBiasedAt> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"q", "k", "v", "table", "kept_k", "kept_v", "y"}) || s["position"].dtype != DType::f64 ||
      s["lse"].dtype != OpShape::statistics(type))
    return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return attention_biased_at<T>; });
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
          {AttentionBiasedAt::kind, select_at, workspace_at},
          {AttentionBiasedGrad::kind, select_backward, workspace<AttentionBiasedGrad>}};
}

}  // namespace prun::cpu::PRUN_ISA
