// Launches add, scale, cast, accumulate, reciprocal, multiply and choose.
#include "elementwise/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/elementwise.hpp"

namespace prun::cuda {
namespace {

template <class T>
void add(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Add> op(args);
  cuda::add(op["a"].as<const T>(), op["b"].as<const T>(), op["y"].as<T>(), op["y"].elements(),
            stream_of(context));
}

template <class T>
void scale(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Scale> op(args);
  cuda::scale(op["x"].as<const T>(), op["y"].as<T>(), op.real("factor"), op["y"].elements(),
              stream_of(context));
}

template <class From, class To>
void cast(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Cast> op(args);
  cuda::cast(op["x"].as<const From>(), op["y"].as<To>(), op["y"].elements(), stream_of(context));
}

template <class T, class S>
void accumulate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Accumulate> op(args);
  const T* x = op["x"].as<const T>();
  S* sum = op["sum"].as<S>();
  const std::int64_t n = op["sum"].elements();
  if (op.begins("sum"))
    cuda::cast(x, sum, n, stream_of(context));
  else
    cuda::accumulate(x, sum, n, stream_of(context));
}

void reciprocal(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Reciprocal> op(args);
  cuda::reciprocal(op["x"].as<const double>(), op["y"].as<double>(), stream_of(context));
}

void multiply(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Multiply> op(args);
  cuda::multiply(op["a"].as<const double>(), op["b"].as<const double>(), op["y"].as<double>(),
                 stream_of(context));
}

void choose(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Choose> op(args);
  cuda::choose(op["which"].as<const double>(), op["a"].as<const double>(), op["b"].as<const double>(),
               op["y"].as<double>(), stream_of(context));
}

Kernel select_add(const OpShape& shape) {
  const ShapeOf<ops::Add> s(shape);
  if (!same_type(s, {"a", "b", "y"})) return nullptr;
  return by_value(s["a"].dtype, []<class T>() -> Kernel { return add<T>; });
}

Kernel select_scale(const OpShape& shape) {
  const ShapeOf<ops::Scale> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return scale<T>; });
}

Kernel select_cast(const OpShape& shape) {
  const ShapeOf<ops::Cast> s(shape);
  return by_value(s["x"].dtype, [&]<class From>() -> Kernel {
    return by_value(s["y"].dtype, []<class To>() -> Kernel { return cast<From, To>; });
  });
}

// Gradients of what a model carries are summed in the type that it computes in, which may be fp16.
Kernel select_accumulate(const OpShape& shape) {
  const ShapeOf<ops::Accumulate> s(shape);
  if (s["x"].dtype == DType::f16 && same_type(s, {"x", "sum"})) return accumulate<f16, f16>;
  return by_sum(s, "x", {"sum"}, []<class T, class S>() -> Kernel { return accumulate<T, S>; });
}

Kernel select_reciprocal(const OpShape& shape) {
  const ShapeOf<ops::Reciprocal> s(shape);
  return all_double(s, {"x", "y"}) && s["x"].rank == 0 ? reciprocal : nullptr;
}

// Only numbers in fp64 are multiplied, by the op's rules.
Kernel select_multiply(const OpShape&) { return multiply; }
Kernel select_choose(const OpShape&) { return choose; }

}  // namespace

std::vector<DeviceOp> elementwise_ops(const OpChoices&) {
  return {{{ops::Add::kind, select_add}},
          {{ops::Scale::kind, select_scale}},
          {{ops::Cast::kind, select_cast}},
          {{ops::Accumulate::kind, select_accumulate, nullptr, bits_of<ops::Accumulate>("sum")}},
          {{ops::Reciprocal::kind, select_reciprocal}},
          {{ops::Multiply::kind, select_multiply}},
          {{ops::Choose::kind, select_choose}}};
}

}  // namespace prun::cuda
