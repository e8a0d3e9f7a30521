// Launches document_starts, token_types and ahead.
#include "documents/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/ahead.hpp"
#include "prun/ops/documents.hpp"
#include "prun/ops/token_types.hpp"

namespace prun::cuda {
namespace {

void document_starts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DocumentStarts> op(args);
  const Tensor& tokens = op["tokens"];
  cuda::document_starts(op["tokens"].as<const std::int32_t>(), op["starts"].as<std::int32_t>(), tokens.dim[0],
                        tokens.dim[1], op.integer("end"), op["positions"].as<const std::int32_t>(),
                        static_cast<std::int32_t*>(args.workspace), stream_of(context));
}

void token_types(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::TokenTypes> op(args);
  const Tensor& tokens = op["tokens"];
  cuda::token_types(op["tokens"].as<const std::int32_t>(), op["kinds"].as<std::int32_t>(),
                    {tokens.dim[0], tokens.dim[1], op.integer("separator"), op.integer("types")},
                    op["positions"].as<const std::int32_t>(), static_cast<std::int32_t*>(args.workspace),
                    stream_of(context));
}

void ahead(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Ahead> op(args);
  const Tensor& x = op["x"];
  cuda::ahead(op["x"].as<const std::int32_t>(), op["y"].as<std::int32_t>(),
              {x.dim[0], x.dim[1], op.integer("by"), static_cast<std::int32_t>(op.integer("otherwise"))},
              op["documents"].as<const std::int32_t>(), op["positions"].as<const std::int32_t>(),
              static_cast<std::int32_t*>(args.workspace), stream_of(context));
}

Kernel select_ahead(const OpShape& shape) {
  const ShapeOf<ops::Ahead> s(shape);
  return s["x"].dtype == DType::i32 && s["y"].dtype == DType::i32 ? ahead : nullptr;
}

Kernel select_token_types(const OpShape& shape) {
  const ShapeOf<ops::TokenTypes> s(shape);
  return s["tokens"].dtype == DType::i32 && s["kinds"].dtype == DType::i32 ? token_types : nullptr;
}

Kernel select_document_starts(const OpShape& shape) {
  const ShapeOf<ops::DocumentStarts> s(shape);
  return s["tokens"].dtype == DType::i32 && s["starts"].dtype == DType::i32 ? document_starts : nullptr;
}

template <class Op>
std::int64_t places_workspace(const OpShape& shape, std::int32_t) {
  return ShapeOf<Op>(shape)["positions"].bytes();
}

}  // namespace

std::vector<DeviceOp> documents_ops(const OpChoices&) {
  return {{{ops::DocumentStarts::kind, select_document_starts, places_workspace<ops::DocumentStarts>}},
          {{ops::TokenTypes::kind, select_token_types, places_workspace<ops::TokenTypes>}},
          {{ops::Ahead::kind, select_ahead, places_workspace<ops::Ahead>}}};
}

}  // namespace prun::cuda
