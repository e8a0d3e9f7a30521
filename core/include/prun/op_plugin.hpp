// SPDX-License-Identifier: Apache-2.0
// A plugin of kind `op` adds ops with their rules, gradients and kernels.
#pragma once

#include "prun/op.hpp"
#include "prun/options.hpp"

namespace prun {

struct DeviceKernel {
  const char* device;  // device's kind, DeviceInfo::kind
  KernelDef kernel;
};

// Describes an operand of an example.
struct ExampleOperand {
  enum class Kind : std::uint8_t { absent, values, numbers, scalar, statistics, sums } kind = Kind::absent;
  DType dtype = DType::i32;  // type of numbers
  std::int32_t rank = 0;
  Dim dims[max_dims] = {};
  double low = 0, high = 0;  // range of drawn values; numbers include both ends
};

// Gives operands that an op can be tried with, for `prun plugins check` and `prun explain`. Extents are small
// and even: dimensions are split in two. An op emitted as a gradient is tried with what reaches it.
//   OpExample("rows").numbers(0, {{"batch", 2}, {"seq", 4}}, 0, 9).values(1, {{"vocab", 10}, {"hidden", 6}})
class OpExample {
 public:
  OpExample() = default;
  explicit OpExample(const char* op) : op_(op) {}

  // Adds an operand of the type that a recipe computes in, drawn from [low, high).
  OpExample& values(int operand, std::initializer_list<Dim> dims, double low = -1, double high = 1) {
    return set(operand, {ExampleOperand::Kind::values, DType::f64, 0, {}, low, high}, dims);
  }
  // Adds an operand of whole numbers from low to high.
  OpExample& numbers(int operand, std::initializer_list<Dim> dims, std::int64_t low, std::int64_t high,
                     DType type = DType::i32) {
    return set(
        operand,
        {ExampleOperand::Kind::numbers, type, 0, {}, static_cast<double>(low), static_cast<double>(high)},
        dims);
  }
  // Adds an operand as values() does, in the type of statistics: fp32, or fp64 where the recipe computes in
  // that.
  OpExample& statistics(int operand, std::initializer_list<Dim> dims, double low = -1, double high = 1) {
    return set(operand, {ExampleOperand::Kind::statistics, DType::f64, 0, {}, low, high}, dims);
  }
  // Adds sums in fp64, of which a step has one set and which start at zero.
  OpExample& sums(int operand, std::initializer_list<Dim> dims) {
    return set(operand, {ExampleOperand::Kind::sums, DType::f64, 0, {}, 0, 0}, dims);
  }
  // Adds a number in fp64, of which a step has one, such as a seed.
  OpExample& scalar(int operand, double value) {
    return set(operand, {ExampleOperand::Kind::scalar, DType::f64, 0, {}, value, value}, {});
  }
  OpExample& attr(const char* name, double value) {
    PRUN_CHECK(attr_count_ < std::size(attrs_), "an example of op '", op_, "' gives too many attributes");
    attrs_[attr_count_++] = {name, value};
    return *this;
  }
  // Names the operands that gradients come back to, unless that is only the first one that the op writes.
  OpExample& results(std::initializer_list<int> operands) {
    for (int i : operands) results_ |= 1u << i;
    return *this;
  }
  // Adds, for a head, operand `sum`, which grows by the loss, whose gradients are those times operand
  // `scale`.
  OpExample& loss(int sum, int scale) {
    loss_ = sum;
    loss_scale_ = scale;
    return *this;
  }

  const char* op() const { return op_; }
  const ExampleOperand& operand(std::size_t i) const { return operands_[i]; }
  Array<AttrValue> attrs() const { return {attrs_, attr_count_}; }
  std::uint32_t results() const { return results_; }
  int loss() const { return loss_; }
  int loss_scale() const { return loss_scale_; }

 private:
  OpExample& set(int i, const ExampleOperand& operand, std::initializer_list<Dim> dims) {
    PRUN_CHECK(i >= 0 && i < max_operands && dims.size() <= max_dims, "an example of op '", op_,
               "' gives operand ", i, " with ", dims.size(), " dimensions");
    operands_[i] = operand;
    for (const Dim& dim : dims) operands_[i].dims[operands_[i].rank++] = dim;
    return *this;
  }

  const char* op_ = "";
  ExampleOperand operands_[max_operands];
  AttrValue attrs_[8] = {};
  std::uint64_t attr_count_ = 0;
  std::uint32_t results_ = 0;  // bit i: operand i; 0: the first written one
  std::int32_t loss_ = -1, loss_scale_ = -1;
};

class OpPlugin {
 public:
  virtual ~OpPlugin() = default;
  // The core borrows the definitions for the life of the plugin.
  virtual std::vector<OpDef> ops() = 0;
  virtual std::vector<DeviceKernel> kernels() = 0;
  // Gives examples of the ops; an op without one is checked only where another op's gradient runs it.
  virtual std::vector<OpExample> examples() { return {}; }
};

class OpPluginInterface {
 public:
  virtual Status ops(Array<OpDef>* ops) noexcept = 0;
  virtual Status kernels(Array<DeviceKernel>* kernels) noexcept = 0;
  virtual Status examples(Array<OpExample>* examples) noexcept = 0;

 protected:
  ~OpPluginInterface() = default;
};

template <class Author>
class OpPluginAdapter final : public OpPluginInterface {
 public:
  explicit OpPluginAdapter(const Options& options)
      : author_(options), ops_(base().ops()), kernels_(base().kernels()), examples_(base().examples()) {}
  Status ops(Array<OpDef>* ops) noexcept override {
    *ops = {ops_.data(), ops_.size()};
    return {};
  }
  Status kernels(Array<DeviceKernel>* kernels) noexcept override {
    *kernels = {kernels_.data(), kernels_.size()};
    return {};
  }
  Status examples(Array<OpExample>* examples) noexcept override {
    *examples = {examples_.data(), examples_.size()};
    return {};
  }

 private:
  OpPlugin& base() { return author_; }
  Author author_;
  std::vector<OpDef> ops_;
  std::vector<DeviceKernel> kernels_;
  std::vector<OpExample> examples_;
};

}  // namespace prun
