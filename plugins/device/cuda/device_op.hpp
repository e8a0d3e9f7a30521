// Describes an op as the device cuda runs it: a kernel called for each launch, or work that is made ready
// once for one or more launches.
#pragma once

#include <concepts>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "cuda/launch.hpp"
#include "prun/device.hpp"
#include "prun/named_operands.hpp"

namespace prun::cuda {

class Libraries;

// Is what a queue does for one launch or more.
class Work {
 public:
  Work() = default;
  // `captures` says that the work may be part of a CUDA graph.
  template <class Run>
  requires std::invocable<Run&, Stream> Work(Run run, bool captures = true)
      : run_(std::move(run)), captures_(captures) {}

  void operator()(Stream stream) const { run_(stream); }
  bool captures() const { return captures_; }

 private:
  std::function<void(Stream)> run_;
  bool captures_ = true;
};

using Launches = std::span<const Launch>;

struct DeviceOp {
  KernelDef def;
  // Where this is null, def's kernel runs each launch. Otherwise it makes work of a launch, and of those
  // after it that merge with it. `stream` may be used to try things; the work runs on it later.
  Work (*bind)(Launches launches, Libraries& libraries, Stream stream) = nullptr;
  bool (*merges)(const Launch& first, const Launch& next) = nullptr;
};

// Is the kernel of ops that have bind().
inline void runs_when_bound(const KernelArgs&, const KernelContext&) {
  throw_error(ErrorCode::internal, "device cuda: this op runs as bound work only");
}

// Turns launches of several ops into one piece of work.
struct Fusion {
  std::size_t (*matches)(Launches left);  // counts the launches it takes, from the first on; 0: none
  // Throws ErrorCode::unsupported where a library cannot after all: then each launch runs by itself.
  Work (*bind)(Launches launches, Libraries& libraries, Stream stream);
  bool row_by_row = false;  // means what may_be_one() says
  // Says which launch, standing somewhere in front, joins those that match, if it may: as the last of them,
  // without a workspace. Null: none does.
  bool (*joins)(Launches some, const Launch& earlier) = nullptr;
};
std::vector<Fusion> fusions();
// Returns the fusions of products in fp8.
std::vector<Fusion> fp8_fusions();

// Decides which kernels there are.
struct OpChoices {
  bool deterministic = false;
  bool few_logits = false;  // means few_logit_bytes
};
// Returns the ops of all families: kernels/linear/bind.cpp brings its own by linear_ops(choices).
std::vector<DeviceOp> all_device_ops(const OpChoices& choices);

// ---------------------------------------------------------------- operands of a launch

inline Stream stream_of(const KernelContext& context) { return static_cast<Stream>(context.stream); }

// Describes an operand that is updated; the op's KernelDef::writes_first names it.
template <class C, class Op>
Sum<C> sum_in(const ArgsOf<Op>& op, OperandOf<Op> name) {
  return {op[name].template as<C>(), op.begins(name)};
}

// ---------------------------------------------------------------- types of an op's operands

// Returns types and presence of a launch's operands in the form that rules see.
inline OpShape types_of(const KernelArgs& args) {
  OpShape shape;
  for (int i = 0; i < args.operand_count; ++i) {
    shape.operand[i].present = args.operands[i].data != nullptr;
    shape.operand[i].dtype = args.operands[i].dtype;
  }
  return shape;
}

// Says whether all listed operands that are present have this type.
template <class Op>
bool have_type(const ShapeOf<Op>& shape, DType type, OperandsOf<Op> operands) {
  for (const OperandOf<Op> name : operands)
    if (shape.has(name) && shape[name].dtype != type) return false;
  return true;
}

// Says whether the listed operands have one type; the first must be present.
template <class Op>
bool same_type(const ShapeOf<Op>& shape, OperandsOf<Op> operands) {
  return have_type(shape, shape[*operands.begin()].dtype, operands);
}

// Says whether the listed operands have the type that values of `type` are computed and kept statistics in.
template <class Op>
bool computed_type(const ShapeOf<Op>& shape, DType type, OperandsOf<Op> operands) {
  return have_type(shape, OpShape::statistics(type), operands);
}
template <class Op>
bool all_double(const ShapeOf<Op>& shape, OperandsOf<Op> operands) {
  for (const OperandOf<Op> name : operands)
    if (shape[name].dtype != DType::f64) return false;
  return true;
}

// Returns choice.template operator()<T>() for the type of values; a default result for any other type.
template <class Choice>
auto by_value(DType type, Choice choice) -> decltype(choice.template operator()<float>()) {
  switch (type) {
    case DType::f64: return choice.template operator()<double>();
    case DType::f32: return choice.template operator()<float>();
    case DType::bf16: return choice.template operator()<bf16>();
    case DType::f16: return choice.template operator()<f16>();
    default: return {};
  }
}

// Returns choice.template operator()<T, S>() for operand `value` and the operands that its values are summed
// in: S is Compute<T>, or bf16 where T is that as well. For any other types it returns a default result.
template <class Op, class Choice>
auto by_sum(const ShapeOf<Op>& shape, OperandOf<Op> value, OperandsOf<Op> sums, Choice choice)
    -> decltype(choice.template operator()<float, float>()) {
  const DType type = shape[value].dtype;
  if (computed_type(shape, type, sums))
    return by_value(type, [&]<class T>() { return choice.template operator()<T, Compute<T>>(); });
  if (type == DType::bf16 && have_type(shape, type, sums)) return choice.template operator()<bf16, bf16>();
  return {};
}

// ---------------------------------------------------------------- binding by type

// Is DeviceOp::bind of ops that do not merge: it calls bind<T>(args, libraries, stream) for the type of the
// first operand.
template <auto bind>
Work bind_typed(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  return by_value(args.operands->dtype,
                  [&]<class T>() -> Work { return bind.template operator()<T>(args, libraries, stream); });
}

}  // namespace prun::cuda
