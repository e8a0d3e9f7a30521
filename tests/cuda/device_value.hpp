// Values on the device, beside those of tests/support, and the CPU's kernels as the reference. A test that
// finds no GPU is skipped and says so. Most tests are built twice, for a GPU and for the host in its place
// (tests/simt).
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <random>

#include "cuda/launch.hpp"
#include "tests/support/kernel_harness.hpp"

namespace prun::test {

// Whether the host stands in for a GPU: it takes its time, so what is drawn is smaller there.
#ifdef PRUN_SIMT
inline constexpr bool on_host = true;
#else
inline constexpr bool on_host = false;
#endif

// The CPU's kernels in the best build this machine can run.
const InstructionSet& cpu_kernels();

inline std::vector<Value> cpu(const std::string& op, std::vector<Value> operands,
                              std::vector<Attr> attrs = {}, std::vector<Start> starts = {},
                              std::int64_t layer = 0) {
  return run_on(cpu_kernels(), {op, std::move(operands), std::move(attrs), std::move(starts), layer}, 2);
}

// The same where those listed are sums that are updated: in bf16 they are added up in float and rounded once,
// as the kernels here do. The CPU's round whenever they add to one.
inline std::vector<Value> cpu_sums(const std::string& op, std::vector<Value> operands,
                                   std::initializer_list<std::size_t> updated, std::vector<Attr> attrs = {},
                                   std::vector<Start> starts = {}) {
  const auto as = [](DType type, const Value& value) { return Value(type, value.dims(), value.numbers()); };
  const std::vector<Value> given = operands;
  for (std::size_t i : updated) operands[i] = as(OpShape::statistics(given[i].dtype()), given[i]);
  std::vector<Value> results = cpu(op, std::move(operands), std::move(attrs), std::move(starts));
  for (std::size_t i : updated) results[i] = as(given[i].dtype(), results[i]);
  return results;
}

// Of a value's type and shape: what a sum holds that was cleared, and one that nobody may read.
inline Value zeros(const Value& like) { return Value(like.dtype(), like.dims()); }
inline Value poison(const Value& like) {
  Value value = zeros(like);
  for (std::size_t i = 0; i < value.size(); ++i) value.set(i, std::nan(""));
  return value;
}

inline void check_cuda(cudaError_t status) {
  if (status != cudaSuccess) throw_error(ErrorCode::internal, "CUDA: ", cudaGetErrorString(status));
}

// Bytes on the device that poison (NaN in every float type) surrounds.
class DeviceBytes {
 public:
  DeviceBytes(std::int64_t bytes, std::int64_t offset) : bytes_(static_cast<std::size_t>(bytes)) {
    begin_ = guard + static_cast<std::size_t>(offset);
    all_.resize(begin_ + bytes_ + guard);
    check_cuda(cudaMalloc(&memory_, all_.size()));
    check_cuda(cudaMemset(memory_, 0xff, all_.size()));
  }
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void write(const void* from) { check_cuda(cudaMemcpy(data(), from, bytes_, cudaMemcpyHostToDevice)); }
  // Waits for the device, and expects that nothing was written beside the bytes.
  void read(void* to) {
    check_cuda(cudaDeviceSynchronize());
    check_cuda(cudaMemcpy(all_.data(), memory_, all_.size(), cudaMemcpyDeviceToHost));
    if (bytes_ > 0) std::memcpy(to, all_.data() + begin_, bytes_);
    const auto poisoned = [](unsigned char c) { return c == 0xff; };
    const auto first = all_.begin() + static_cast<std::ptrdiff_t>(begin_);
    EXPECT_TRUE(std::all_of(all_.begin(), first, poisoned)) << "written in front";
    EXPECT_TRUE(std::all_of(first + static_cast<std::ptrdiff_t>(bytes_), all_.end(), poisoned))
        << "written behind";
  }
  void* data() const { return static_cast<char*>(memory_) + begin_; }

 private:
  static constexpr std::size_t guard = 256;  // as cudaMalloc aligns
  std::size_t bytes_, begin_;
  std::vector<unsigned char> all_;
  void* memory_ = nullptr;
};

// A copy of a value on the device, `offset` elements off 16-byte alignment.
class OnDevice {
 public:
  explicit OnDevice(const Value& value, std::int64_t offset = 0)
      : value_(value), bytes_(static_cast<std::int64_t>(value.bytes().size()), offset * element_size(value)) {
    bytes_.write(value.bytes().data());
  }
  // Poisoned: for a result.
  OnDevice(DType type, std::vector<std::int64_t> dims, std::int64_t offset = 0)
      : value_(type, std::move(dims)),
        bytes_(static_cast<std::int64_t>(value_.bytes().size()), offset * element_size(value_)) {}

  template <class T>
  T* as() const {
    return static_cast<T*>(bytes_.data());
  }
  Value value() {
    Value result = value_;
    bytes_.read(result.tensor().data);
    return result;
  }

 private:
  static std::int64_t element_size(const Value& value) {
    return value.size() == 0 ? 0 : static_cast<std::int64_t>(value.bytes().size() / value.size());
  }
  Value value_;
  DeviceBytes bytes_;
};

// Poisoned, and checked for what is written behind it when it goes.
class DeviceWorkspace {
 public:
  explicit DeviceWorkspace(std::int64_t bytes) : bytes_(bytes, 0), host_(static_cast<std::size_t>(bytes)) {}
  ~DeviceWorkspace() { bytes_.read(host_.data()); }
  void* data() const { return bytes_.data(); }

 private:
  DeviceBytes bytes_;
  std::vector<char> host_;
};

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU on this machine";
  }
};

// Calls body<T>(offset) for the value types, with pointers that are aligned and that are not. The host, which
// takes a thread for a thread, has two of the types without alignment.
template <class Body>
void for_types(Body body) {
  const auto one = [&]<class T>(T) {
    constexpr bool usual = std::is_same_v<T, float> || std::is_same_v<T, bf16>;
    for (std::int64_t offset = 0; offset < (on_host && !usual ? 1 : 2); ++offset) {
      SCOPED_TRACE(std::string(name_of(dtype_of<T>())) + (offset ? ", not aligned" : ""));
      body.template operator()<T>(offset);
    }
  };
  one(double{}), one(float{}), one(bf16{}), one(f16{});
}

// Calls body<T, S>(offset) for values T and the types S that they are summed in.
template <class Body>
void for_sums(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    body.template operator()<T, cuda::Compute<T>>(offset);
    if constexpr (std::is_same_v<T, bf16>) {
      SCOPED_TRACE("sums in bf16");
      body.template operator()<T, bf16>(offset);
    }
  });
}

struct RowShape {
  std::int64_t rows, width;
};

// Rows and widths: awkward ones, and some drawn.
inline std::vector<RowShape> row_shapes() {
  std::vector<RowShape> shapes = {{1, 1}, {1, 8}, {7, 1}, {3, 33}, {5, 64}, {9, 768}, {1, 10001}};
  if (on_host)
    shapes.push_back({70, 40});
  else
    shapes.insert(shapes.end(), {{300, 96}, {4, 4096}, {2, 10001}});
  std::mt19937 generator(11);
  for (int i = 0; i < (on_host ? 2 : 4); ++i) {
    const std::int64_t rows = 1 + generator() % (on_host ? 40 : 400), width = 1 + generator() % 700;
    shapes.push_back({rows, i % 2 ? width : on_host ? width / 8 * 8 + 8 : width * 8});
  }
  return shapes;
}

template <class Body>
void for_row_shapes(Body body) {
  for (const RowShape& shape : row_shapes()) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.width));
    body(shape.rows, shape.width);
  }
}

template <class Body>
void for_rows(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    for_row_shapes(
        [&](std::int64_t rows, std::int64_t width) { body.template operator()<T>(rows, width, offset); });
  });
}

template <class Body>
void for_row_sums(Body body) {
  for_sums([&]<class T, class S>(std::int64_t offset) {
    for_row_shapes(
        [&](std::int64_t rows, std::int64_t width) { body.template operator()<T, S>(rows, width, offset); });
  });
}

template <class T>
DType sum_type() {
  return dtype_of<cuda::Compute<T>>();
}

// Of sums in another order, so many times that of one number: of two bytes, one may be rounded to the
// neighbour.
template <class S>
double close_sums(double times) {
  return times * tolerance(sum_type<S>()) + (sizeof(S) == 2 ? tolerance(dtype_of<S>()) : 0);
}

}  // namespace prun::test
