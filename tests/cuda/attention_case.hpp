// Attention on the host, as the CPU's kernels have it, and on the device: queries, keys and values packed by
// head group, or apart.
#pragma once

#include <optional>

#include "attention/cuda.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test {

inline std::string text_of(const cuda::AttentionShape& s) {
  return std::to_string(s.batch) + " x " + std::to_string(s.seq) + ", " + std::to_string(s.heads) + " x " +
         std::to_string(s.queries) + " heads of " + std::to_string(s.head_dim) +
         (s.causal ? ", causal" : ", full") + (s.window > 0 ? ", window " + std::to_string(s.window) : "") +
         (s.p > 0 ? ", drops" : "");
}

// What says which weights are dropped, where any are: of samples with long numbers, of heads behind others.
class Draws {
 public:
  static constexpr std::int64_t layer = 5, stream = 300, first_head = 3;

  explicit Draws(const cuda::AttentionShape& s)
      : samples_(DType::i64, {s.batch}),
        place_(static_cast<std::uint32_t>((layer << 16) + stream + first_head * s.queries)) {
    for (std::int64_t b = 0; b < s.batch; ++b)
      samples_.tensor().as<std::int64_t>()[b] = (b << 32) * 5 + b + 7;
    on_samples_.emplace(samples_), on_seed_.emplace(seed_);
  }

  const Value& samples() const { return samples_; }
  const Value& seed() const { return seed_; }
  cuda::AttentionDraws on_device() const {
    return {on_samples_->as<const std::int64_t>(), on_seed_->as<const double>(), place_};
  }

 private:
  Value samples_, seed_ = number(0x1p40 + 12345);
  std::uint32_t place_;
  std::optional<OnDevice> on_samples_, on_seed_;
};

// A shape's operands.
struct AttentionDims {
  std::int64_t packed;
  std::vector<std::int64_t> x, q, k, lse;

  explicit AttentionDims(const cuda::AttentionShape& s)
      : packed(s.queries + 2),
        x{s.batch, s.seq, s.heads, packed, s.head_dim},
        q{s.batch, s.seq, s.heads, s.queries, s.head_dim},
        k{s.batch, s.seq, s.heads, s.head_dim},
        lse{s.batch, s.heads, s.queries, s.seq} {}
};

// The slots of x[batch, seq, heads, slots, head_dim] from `first` on, as many as a value of these dims holds.
inline Value slots_of(const Value& x, DType type, std::int64_t first, const std::vector<std::int64_t>& dims) {
  Value part(type, dims);
  const auto slots = static_cast<std::size_t>(x.dims()[3]), width = static_cast<std::size_t>(x.dims()[4]);
  const std::size_t heads = x.size() / (slots * width), row = part.size() / heads;
  for (std::size_t i = 0; i < part.size(); ++i)
    part.set(i, x[(i / row * slots + static_cast<std::size_t>(first)) * width + i % row]);
  return part;
}

// Random operands, and what is right for them.
template <class T>
struct AttentionReference {
  cuda::AttentionShape shape;
  AttentionDims dims;
  Value x, dy, y, lse, dq, dk, dv;  // x is packed
  Value documents;                  // absent where they are not kept apart

  explicit AttentionReference(const cuda::AttentionShape& s, double amplitude = 1)
      : shape(s),
        dims(s),
        x(random_value(dtype_of<T>(), dims.x, 1, amplitude)),
        dy(random_value(dtype_of<T>(), dims.q, 2)),
        y(dtype_of<T>(), dims.q),
        lse(sum_type<T>(), dims.lse),
        dq(dtype_of<T>(), dims.q),
        dk(dtype_of<T>(), dims.k),
        dv(dtype_of<T>(), dims.k) {}

  // Parts of a packed value.
  Value queries(const Value& all) const { return slots_of(all, dtype_of<T>(), 0, dims.q); }
  Value keys(const Value& all) const { return slots_of(all, dtype_of<T>(), shape.queries, dims.k); }
  Value values(const Value& all) const { return slots_of(all, dtype_of<T>(), shape.queries + 1, dims.k); }
};

// The same on the device, results poisoned until a kernel writes them. Backward begins with the CPU's y and
// lse.
template <class T>
class AttentionOnDevice {
  using C = cuda::Compute<T>;

 public:
  AttentionOnDevice(const AttentionReference<T>& r, bool packed, std::int64_t offset = 0)
      : reference_(r),
        packed_(packed),
        x_(r.x, offset),
        q_(r.queries(r.x), offset),
        k_(r.keys(r.x), offset),
        v_(r.values(r.x), offset),
        dy_(r.dy, offset),
        y_in_(r.y, offset),
        lse_in_(r.lse),
        y_(dtype_of<T>(), r.dims.q, offset),
        lse_(sum_type<T>(), r.dims.lse),
        dx_(dtype_of<T>(), r.dims.x, offset),
        dq_(dtype_of<T>(), r.dims.q, offset),
        dk_(dtype_of<T>(), r.dims.k, offset),
        dv_(dtype_of<T>(), r.dims.k, offset),
        draws_(r.shape) {
    if (!r.documents.dims().empty()) documents_.emplace(r.documents);
  }

  cuda::AttentionForward<T> forward(void* workspace) const {
    return {shape(),
            queries<const T>(x_, q_),
            keys<const T>(x_, k_),
            values<const T>(x_, v_),
            whole<T>(y_),
            lse_.template as<C>(),
            workspace,
            documents(),
            draws_.on_device()};
  }
  cuda::AttentionBackward<T> backward(void* workspace) const {
    return {shape(),
            whole<const T>(dy_),
            queries<const T>(x_, q_),
            keys<const T>(x_, k_),
            values<const T>(x_, v_),
            whole<const T>(y_in_),
            lse_in_.template as<C>(),
            queries<T>(dx_, dq_),
            keys<T>(dx_, dk_),
            values<T>(dx_, dv_),
            workspace,
            documents(),
            draws_.on_device()};
  }
  Value y() { return y_.value(); }
  Value lse() { return lse_.value(); }
  Value dq() { return packed_ ? reference_.queries(dx_.value()) : dq_.value(); }
  Value dk() { return packed_ ? reference_.keys(dx_.value()) : dk_.value(); }
  Value dv() { return packed_ ? reference_.values(dx_.value()) : dv_.value(); }

 private:
  const cuda::AttentionShape& shape() const { return reference_.shape; }
  const std::int32_t* documents() const {
    return documents_ ? documents_->template as<std::int32_t>() : nullptr;
  }
  template <class U>
  cuda::Heads<U> heads(const OnDevice& at, std::int64_t slots, std::int64_t slot) const {
    return {at.as<T>() + slot * shape().head_dim, cuda::head_strides(shape(), slots)};
  }
  template <class U>
  cuda::Heads<U> whole(const OnDevice& at) const {
    return heads<U>(at, shape().queries, 0);
  }
  template <class U>
  cuda::Heads<U> queries(const OnDevice& packed, const OnDevice& apart) const {
    return packed_ ? heads<U>(packed, shape().queries + 2, 0) : whole<U>(apart);
  }
  template <class U>
  cuda::Heads<U> keys(const OnDevice& packed, const OnDevice& apart) const {
    return packed_ ? heads<U>(packed, shape().queries + 2, shape().queries) : heads<U>(apart, 1, 0);
  }
  template <class U>
  cuda::Heads<U> values(const OnDevice& packed, const OnDevice& apart) const {
    return packed_ ? heads<U>(packed, shape().queries + 2, shape().queries + 1) : heads<U>(apart, 1, 0);
  }

  const AttentionReference<T>& reference_;
  bool packed_;
  OnDevice x_, q_, k_, v_, dy_, y_in_, lse_in_, y_, lse_, dx_, dq_, dk_, dv_;
  std::optional<OnDevice> documents_;
  Draws draws_;
};

// What the CPU's kernels say.
template <class T>
AttentionReference<T> by_cpu(const cuda::AttentionShape& shape, double amplitude = 1,
                             const Value& documents = {}) {
  AttentionReference<T> r(shape, amplitude);
  r.documents = documents;
  const std::vector<Attr> attrs = {
      {.i = shape.causal}, {.i = shape.window}, {.f = shape.softcap}, {.f = shape.p}, {.i = Draws::stream}};
  const Value q = r.queries(r.x), k = r.keys(r.x), v = r.values(r.x);
  const Draws draws(shape);
  const std::vector<Value> forward =
      cpu("attention", {q, k, v, r.y, r.lse, documents, Value(), draws.samples(), draws.seed()}, attrs,
          {{0, 2, Draws::first_head}}, Draws::layer);
  r.y = forward[3], r.lse = forward[4];
  const std::vector<Value> backward =
      cpu("attention_grad",
          {r.dy, q, k, v, r.y, r.lse, r.dq, r.dk, r.dv, documents, draws.samples(), draws.seed()}, attrs,
          {{1, 2, Draws::first_head}}, Draws::layer);
  r.dq = backward[6], r.dk = backward[7], r.dv = backward[8];
  return r;
}

// What prun's own kernels for GPUs say.
template <class T>
AttentionReference<T> by_own_kernels(const cuda::AttentionShape& shape) {
  AttentionReference<T> r(shape);
  {
    AttentionOnDevice<T> device(r, false);
    cuda::attention(device.forward(nullptr), nullptr);
    r.y = device.y(), r.lse = device.lse();
  }
  AttentionOnDevice<T> device(r, false);
  const DeviceWorkspace workspace(cuda::attention_backward_workspace<T>(shape));
  cuda::attention_backward(device.backward(workspace.data()), nullptr);
  r.dq = device.dq(), r.dk = device.dk(), r.dv = device.dv();
  return r;
}

// Row by row of `width` channels, by the length of the difference: at most `bound` of the row's own length,
// or of a tenth of the usual one for rows that nearly vanish. Rounding to bf16, which is done with weights
// as well, gives less than a hundredth.
inline void expect_rows_close(const Value& got, const Value& want, std::int64_t width, const char* what,
                              double bound = 0.02) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const auto n = static_cast<std::size_t>(width), rows = want.size() / n;
  double all = 0;
  for (std::size_t i = 0; i < want.size(); ++i) all += want[i] * want[i];
  const double usual = std::sqrt(all / static_cast<double>(rows));
  double worst = 0, worst_row = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    double difference = 0, length = 0;
    for (std::size_t d = row * n; d < (row + 1) * n; ++d) {
      difference += (got[d] - want[d]) * (got[d] - want[d]);
      length += want[d] * want[d];
    }
    const double off = std::sqrt(difference) / std::max({std::sqrt(length), usual / 10, 1e-6});
    if (off > worst || std::isnan(off)) worst = off, worst_row = static_cast<double>(row);
    if (std::isnan(off)) break;
  }
  EXPECT_LE(worst, bound) << what << ": row " << worst_row << " of " << rows
                          << " is off by this part of its length";
}

template <class T>
void expect_gradients_close(AttentionOnDevice<T>& got, const AttentionReference<T>& want,
                            double bound = 0.02) {
  const std::int64_t width = want.shape.head_dim;
  expect_rows_close(got.dq(), want.dq, width, "dq", bound);
  expect_rows_close(got.dk(), want.dk, width, "dk", bound);
  expect_rows_close(got.dv(), want.dv, width, "dv", bound);
}

}  // namespace prun::test
