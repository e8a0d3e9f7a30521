// SPDX-License-Identifier: Apache-2.0
// Names operands and attributes of an op in its rule, cost, gradient and kernels. A name is looked up in
// Op::operands or Op::attrs at compile time: only the index remains, and a name that the op does not have
// does not compile.
//
//   void Gate::rule(RuleOf<Gate> s) {
//     PRUN_CHECK(s["gate"].rank == s["x"].rank, kind, " takes a gate for each x");
//     s.like("y", "x");
//     s.pass_partial({"x"});
//   }
//   void Gate::gradient(GradientOf<Gate> g) { g.input("x", "gate", {g.arrived("y"), g["gate"]}); }
//
//   void gate(const KernelArgs& args, const KernelContext& context) {
//     const ArgsOf<Gate> op(args);
//     const float *x = op["x"].as<const float>(), *gate = op["gate"].as<const float>();
//   }
//
// The ops of prun are in prun/ops: kernels of another device name their operands as prun's own do.
#pragma once

#include <concepts>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include "prun/op.hpp"

namespace prun {

// Converts a literal name to the index of an operand of the op.
template <class Op>
struct OperandNumber {
  int index = 0;
  consteval OperandNumber(const char* name) {
    while (std::string_view(Op::operands[index].name) != name)
      if (++index == static_cast<int>(std::size(Op::operands))) throw "the op has no operand of this name";
  }
};

// Converts a literal name to the index of an attribute of the op, for integer() or real().
enum class AttrType : std::uint8_t { integer, real, any };
template <class Op, AttrType type>
struct AttrOf {
  int index = 0;
  consteval AttrOf(const char* name) {
    while (std::string_view(Op::attrs[index].name) != name)
      if (++index == static_cast<int>(std::size(Op::attrs))) throw "the op has no attribute of this name";
    if (type != AttrType::any && Op::attrs[index].real != (type == AttrType::real))
      throw "the attribute is of the other type: ask integer() or real()";
  }
  constexpr const char* name() const { return Op::attrs[index].name; }
};

// Parameter types that take one name, or a list of names; another argument determines the op.
template <class Op>
using OperandOf = std::type_identity_t<OperandNumber<Op>>;
template <class Op>
using OperandsOf = std::initializer_list<OperandOf<Op>>;

// Returns an operand's index, for code that works on several ops.
template <class Op>
consteval int operand_of(OperandOf<Op> name) {
  return name.index;
}

// Returns an attribute's index.
template <class Op>
consteval int attr_of(AttrOf<Op, AttrType::any> name) {
  return name.index;
}

// Returns operands as bits, such as KernelDef::writes_first.
template <class Op, class... Names>
consteval std::uint32_t bits_of(Names... names) {
  return (0u | ... | (1u << OperandOf<Op>(names).index));
}

// Gives a kernel the operands and attributes of a launch, by name.
template <class Op>
class ArgsOf {
 public:
  explicit ArgsOf(const KernelArgs& args) : args_(args) {}

  const Tensor& operator[](OperandOf<Op> name) const { return args_.operands[name.index]; }
  bool has(OperandOf<Op> name) const { return (*this)[name].data != nullptr; }
  bool begins(OperandOf<Op> name) const { return args_.begins(name.index); }
  bool changed(OperandOf<Op> name) const { return args_.changed(name.index); }
  std::int64_t integer(AttrOf<Op, AttrType::integer> name) const { return args_.attrs[name.index].i; }
  double real(AttrOf<Op, AttrType::real> name) const { return args_.attrs[name.index].f; }
  int at(OperandOf<Op> name) const { return name.index; }
  operator const KernelArgs&() const { return args_; }

 private:
  const KernelArgs& args_;
};

// Gives shapes and attributes, by name, to code that chooses a kernel, and to a cost.
template <class Op>
class ShapeOf {
 public:
  ShapeOf(const OpShape& shape) : shape_(shape) {}

  const OperandShape& operator[](OperandOf<Op> name) const { return shape_.operand[name.index]; }
  bool has(OperandOf<Op> name) const { return (*this)[name].present; }
  std::int64_t integer(AttrOf<Op, AttrType::integer> name) const { return shape_.attrs[name.index].i; }
  double real(AttrOf<Op, AttrType::real> name) const { return shape_.attrs[name.index].f; }
  int at(OperandOf<Op> name) const { return name.index; }
  // A template, so that a rule's own conversion comes first.
  template <std::same_as<OpShape> Shape>
  operator const Shape&() const {
    return shape_;
  }

 private:
  const OpShape& shape_;
};

// Wraps OpShape with access by name: what a rule reads and fills.
template <class Op>
class RuleOf : public ShapeOf<Op> {
 public:
  RuleOf(OpShape& shape) : ShapeOf<Op>(shape), shape_(shape) {}

  OperandShape& operator[](OperandOf<Op> name) const { return shape_.operand[name.index]; }
  operator OpShape&() const { return shape_; }

  void output(OperandOf<Op> name, DType dtype, const Dim* dims, int rank) const {
    shape_.output(name.index, dtype, dims, rank);
  }
  void like(OperandOf<Op> name, OperandOf<Op> source) const { shape_.like(name.index, source.index); }
  void scalar(OperandOf<Op> name, DType dtype) const { shape_.scalar(name.index, dtype); }
  void sum(const Name& dim) const { shape_.sum(dim); }
  void max(const Name& dim) const { shape_.max(dim); }
  void whole(const Name& dim) const { shape_.whole(dim); }
  void prefer(const Name& dim) const { shape_.prefer(dim); }
  // Mark the dimensions [from, to) of an operand.
  void sum(OperandOf<Op> name, int from, int to) const { shape_.sum(name.index, from, to); }
  void max(OperandOf<Op> name, int from, int to) const { shape_.max(name.index, from, to); }
  void whole(OperandOf<Op> name, int from, int to) const { shape_.whole(name.index, from, to); }
  void pass_partial(OperandsOf<Op> names) const {
    for (const OperandOf<Op> name : names) shape_.pass_partial({name.index});
  }
  void pass_maximum(OperandsOf<Op> names) const {
    for (const OperandOf<Op> name : names) shape_.pass_maximum({name.index});
  }
  void keep_own(OperandOf<Op> name) const { shape_.keep_own(name.index); }

 private:
  OpShape& shape_;
};

// Wraps Gradient with access by name.
template <class Op>
class GradientOf : public Gradient {
  using Ids = std::initializer_list<Id>;
  using Attrs = std::initializer_list<AttrValue>;

 public:
  GradientOf(const Gradient& gradient) : Gradient(gradient) {}

  Id operator[](OperandOf<Op> name) const { return Gradient::operand(name.index); }
  Id arrived(OperandOf<Op> output) const { return Gradient::arrived(output.index); }
  bool wanted(OperandOf<Op> name) const { return Gradient::wanted(name.index); }
  double attr(AttrOf<Op, AttrType::any> name) const { return Gradient::attr(name.name()); }
  void input(OperandOf<Op> target, const char* kind, Ids operands, Attrs attrs = {}) const {
    Gradient::input(target.index, kind, operands, attrs);
  }
  template <std::size_t n>
  void inputs(const OperandOf<Op> (&targets)[n], const char* kind, Ids operands, Attrs attrs = {}) const {
    with_numbers(targets, [&](std::initializer_list<int> numbers) {
      Gradient::inputs(numbers, kind, operands, attrs);
    });
  }
  void bind(OperandOf<Op> name, Id value) const { Gradient::bind(name.index, value); }
  Id keep(OperandOf<Op> name) const { return Gradient::keep(name.index); }
  Id accumulator(OperandOf<Op> name) const { return Gradient::accumulator(name.index); }
  void pass(OperandOf<Op> name, Id gradient) const { Gradient::pass(name.index, gradient); }
  template <std::size_t n>
  void weight(const OperandOf<Op> (&targets)[n], const char* kind, Ids operands, Attrs attrs = {}) const {
    with_numbers(targets, [&](std::initializer_list<int> numbers) {
      Gradient::weight(numbers, kind, operands, attrs);
    });
  }

 private:
  template <std::size_t n, class Call>
  static void with_numbers(const OperandOf<Op> (&names)[n], const Call& call) {
    [&]<std::size_t... i>(std::index_sequence<i...>) { call({names[i].index...}); }
    (std::make_index_sequence<n>());
  }
};

// Wraps OpSplit with access by name.
template <class Op>
class SplitOf : public OpSplit {
 public:
  SplitOf(const OpSplit& split) : OpSplit(split) {}

  Id operator[](OperandOf<Op> name) const { return OpSplit::operand(name.index); }
  ShapeOf<Op> shape() const { return OpSplit::shape(); }
  int at(OperandOf<Op> name) const { return name.index; }
};

}  // namespace prun
