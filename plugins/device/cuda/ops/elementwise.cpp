// Launches add, scale, cast, accumulate, reciprocal, multiply and choose.
#include "cuda/elementwise.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T>
void add(const KernelArgs& args, const KernelContext& context) {
  cuda::add(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2), args.operands[2].elements(),
            stream_of(context));
}

template <class T>
void scale(const KernelArgs& args, const KernelContext& context) {
  cuda::scale(data<const T>(args, 0), data<T>(args, 1), args.attrs[0].f, args.operands[1].elements(),
              stream_of(context));
}

template <class From, class To>
void cast(const KernelArgs& args, const KernelContext& context) {
  cuda::cast(data<const From>(args, 0), data<To>(args, 1), args.operands[1].elements(), stream_of(context));
}

template <class T, class S>
void accumulate(const KernelArgs& args, const KernelContext& context) {
  const T* x = data<const T>(args, 0);
  S* sum = data<S>(args, 1);
  const std::int64_t n = args.operands[1].elements();
  if (args.begins(1))
    cuda::cast(x, sum, n, stream_of(context));
  else
    cuda::accumulate(x, sum, n, stream_of(context));
}

void reciprocal(const KernelArgs& args, const KernelContext& context) {
  cuda::reciprocal(data<const double>(args, 0), data<double>(args, 1), stream_of(context));
}

void multiply(const KernelArgs& args, const KernelContext& context) {
  cuda::multiply(data<const double>(args, 0), data<const double>(args, 1), data<double>(args, 2),
                 stream_of(context));
}

void choose(const KernelArgs& args, const KernelContext& context) {
  cuda::choose(data<const double>(args, 0), data<const double>(args, 1), data<const double>(args, 2),
               data<double>(args, 3), stream_of(context));
}

Kernel select_add(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return add<T>; });
}

Kernel select_scale(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return scale<T>; });
}

Kernel select_cast(const OpShape& s) {
  return by_value(s.operand[0].dtype, [&]<class From>() -> Kernel {
    return by_value(s.operand[1].dtype, []<class To>() -> Kernel { return cast<From, To>; });
  });
}

// Gradients of what a model carries are summed in the type that it computes in, which may be fp16.
Kernel select_accumulate(const OpShape& s) {
  if (s.operand[0].dtype == DType::f16 && same_type(s, {0, 1})) return accumulate<f16, f16>;
  return by_sum(s, 0, {1}, []<class T, class S>() -> Kernel { return accumulate<T, S>; });
}

Kernel select_reciprocal(const OpShape& s) {
  return all_double(s, 0, 2) && s.operand[0].rank == 0 ? reciprocal : nullptr;
}

// Only numbers in fp64 are multiplied, by the op's rules.
Kernel select_multiply(const OpShape&) { return multiply; }
Kernel select_choose(const OpShape&) { return choose; }

}  // namespace

std::vector<DeviceOp> elementwise_ops(const OpChoices&) {
  return {{{"add", select_add}},
          {{"scale", select_scale}},
          {{"cast", select_cast}},
          {{"accumulate", select_accumulate, nullptr, 1u << 1}},
          {{"reciprocal", select_reciprocal}},
          {{"multiply", select_multiply}},
          {{"choose", select_choose}}};
}

}  // namespace prun::cuda
