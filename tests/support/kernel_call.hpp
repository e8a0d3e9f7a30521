// Makes one launch of a CPU kernel on values given as numbers, with a poisoned workspace of exactly the
// declared size and a guard behind it; and the same kernel from every instruction set that this machine has.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "prun/op.hpp"
#include "tests/support/test_workers.hpp"

namespace prun::test {

inline Name dim_name(std::size_t d) {
  constexpr Name names[max_dims] = {"d0", "d1", "d2", "d3", "d4", "d5"};
  return names[d];
}

// Is a dense tensor that owns its elements; numbers go in and come out as double.
class Value {
 public:
  Value() = default;  // is absent
  Value(DType dtype, std::vector<std::int64_t> dims) : present_(true), dtype_(dtype), dims_(std::move(dims)) {
    bytes_.resize(static_cast<std::size_t>(elements() * size_of(dtype)));
  }
  Value(DType dtype, std::vector<std::int64_t> dims, const std::vector<double>& numbers)
      : Value(dtype, std::move(dims)) {
    for (std::size_t i = 0; i < numbers.size(); ++i) set(i, numbers[i]);
  }
  static Value random(DType dtype, std::vector<std::int64_t> dims, unsigned seed) {
    Value value(dtype, std::move(dims));
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (std::size_t i = 0; i < value.size(); ++i) value.set(i, uniform(generator));
    return value;
  }

  DType dtype() const { return dtype_; }
  std::size_t size() const { return static_cast<std::size_t>(elements()); }
  const std::vector<char>& bytes() const { return bytes_; }
  const std::vector<std::int64_t>& dims() const { return dims_; }
  double operator[](std::size_t i) const {
    switch (dtype_) {
      case DType::f64: return at<double>(i);
      case DType::f32: return static_cast<double>(at<float>(i));
      case DType::bf16: return static_cast<double>(static_cast<float>(at<bf16>(i)));
      case DType::f16: return static_cast<double>(static_cast<float>(at<f16>(i)));
      case DType::u16: return at<std::uint16_t>(i);
      default: return at<std::int32_t>(i);
    }
  }
  void set(std::size_t i, double number) {
    switch (dtype_) {
      case DType::f64: put(i, number); break;
      case DType::f32: put(i, static_cast<float>(number)); break;
      case DType::bf16: put(i, bf16(static_cast<float>(number))); break;
      case DType::f16: put(i, f16(static_cast<float>(number))); break;
      case DType::u16: put(i, static_cast<std::uint16_t>(number)); break;
      default: put(i, static_cast<std::int32_t>(number));
    }
  }
  std::vector<double> numbers() const {
    std::vector<double> all(size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = (*this)[i];
    return all;
  }
  // Returns index i of the leading dimension, which stays as extent 1.
  Value slice(std::int64_t i) const {
    std::vector<std::int64_t> dims = dims_;
    dims[0] = 1;
    Value part(dtype_, dims);
    std::memcpy(part.bytes_.data(), bytes_.data() + static_cast<std::size_t>(i) * part.bytes_.size(),
                part.bytes_.size());
    return part;
  }

  Tensor tensor() {
    Tensor t{present_ ? bytes_.data() : nullptr, dtype_, static_cast<std::int32_t>(dims_.size()), {}, {}};
    std::copy(dims_.begin(), dims_.end(), t.dim);
    return t;
  }
  OperandShape shape() const {
    OperandShape s{present_, dtype_, static_cast<std::int32_t>(dims_.size()), {}};
    for (std::size_t d = 0; d < dims_.size(); ++d) s.dims[d] = {dim_name(d), dims_[d]};
    return s;
  }

 private:
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : dims_) n *= extent;
    return n;
  }
  template <class T>
  T at(std::size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void put(std::size_t i, T value) {
    std::memcpy(bytes_.data() + i * sizeof(T), &value, sizeof(T));
  }

  bool present_ = false;
  DType dtype_ = DType::f32;
  std::vector<std::int64_t> dims_;
  std::vector<char> bytes_;
};

struct InstructionSet {
  const char* name;
  std::vector<KernelDef> kernels;
};

// Declares `list` (say, linear_kernels) of all three builds, and in the namespace of the file all_kernels():
// those that were built and this machine can run.
#define PRUN_TEST_KERNELS(list, file)                                                      \
  namespace prun::cpu {                                                                    \
  namespace generic {                                                                      \
  [[gnu::weak]] std::vector<KernelDef> list();                                             \
  }                                                                                        \
  namespace avx2 {                                                                         \
  [[gnu::weak]] std::vector<KernelDef> list();                                             \
  }                                                                                        \
  namespace avx512 {                                                                       \
  [[gnu::weak]] std::vector<KernelDef> list();                                             \
  }                                                                                        \
  }                                                                                        \
  namespace prun::test::file {                                                             \
  namespace {                                                                              \
  std::vector<prun::test::InstructionSet> all_kernels() {                                  \
    std::vector<prun::test::InstructionSet> sets;                                          \
    if (prun::cpu::generic::list) sets.push_back({"generic", prun::cpu::generic::list()}); \
    if (prun::cpu::avx2::list && __builtin_cpu_supports("avx2"))                           \
      sets.push_back({"avx2", prun::cpu::avx2::list()});                                   \
    if (prun::cpu::avx512::list && __builtin_cpu_supports("avx512bw"))                     \
      sets.push_back({"avx512", prun::cpu::avx512::list()});                               \
    return sets;                                                                           \
  }                                                                                        \
  }                                                                                        \
  }

inline const KernelDef& find_kernel(const InstructionSet& set, const std::string& op) {
  for (const KernelDef& def : set.kernels)
    if (op == def.op) return def;
  throw_error(ErrorCode::internal, "no kernel for ", op);
}

inline OpShape shape_of(const std::vector<Value*>& operands, const Attr* attrs) {
  OpShape shape;
  shape.count = static_cast<std::int32_t>(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) shape.operand[i] = operands[i]->shape();
  shape.attrs = attrs;
  return shape;
}

// Attributes that a call leaves out are 0, which most fall back to.
inline std::vector<Attr> with_zeros(std::vector<Attr> attrs) {
  constexpr std::size_t most = 16;
  attrs.resize(std::max(attrs.size(), most));
  return attrs;
}

inline void launch(const KernelDef& def, const std::vector<Value*>& operands, std::vector<Attr> attrs,
                   std::int32_t threads, std::uint32_t first = 0) {
  attrs = with_zeros(std::move(attrs));
  const OpShape shape = shape_of(operands, attrs.data());
  const Kernel kernel = def.select(shape);
  ASSERT_NE(kernel, nullptr) << def.op;
  std::vector<Tensor> tensors;
  for (Value* operand : operands) tensors.push_back(operand->tensor());
  tensors.resize(max_operands);  // optional ones at the end may be left out
  const auto bytes = static_cast<std::size_t>(def.workspace ? def.workspace(shape, threads) : 0);
  constexpr std::size_t guard = 4096;
  std::vector<unsigned char> workspace(bytes + guard, 0xff);  // floats of this pattern are NaN
  TestWorkers pool(threads);
  const Workers workers = pool.workers();
  const KernelContext context{&workers, nullptr};
  kernel(
      {tensors.data(), attrs.data(), workspace.data(), 0, static_cast<std::int32_t>(operands.size()), first},
      context);
  EXPECT_TRUE(std::all_of(workspace.begin() + static_cast<std::ptrdiff_t>(bytes), workspace.end(),
                          [](unsigned char c) { return c == 0xff; }))
      << def.op << " writes past its workspace";
}

// Expects |got - want| <= tolerance * (1 + |want|), element by element; the first that fails is named.
inline void expect_close(const Value& got, const std::vector<double>& want, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::abs(got[i] - want[i]) <= tolerance * (1 + std::abs(want[i]))) continue;
    ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", should be " << want[i];
    return;
  }
}

}  // namespace prun::test
