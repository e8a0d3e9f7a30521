// Launches document_starts, token_types and ahead.
#include "cuda/documents.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

void document_starts(const KernelArgs& args, const KernelContext& context) {
  const Tensor& tokens = args.operands[0];
  cuda::document_starts(data<const std::int32_t>(args, 0), data<std::int32_t>(args, 1), tokens.dim[0],
                        tokens.dim[1], args.attrs[0].i, data<const std::int32_t>(args, 2),
                        static_cast<std::int32_t*>(args.workspace), stream_of(context));
}

void token_types(const KernelArgs& args, const KernelContext& context) {
  const Tensor& tokens = args.operands[0];
  cuda::token_types(data<const std::int32_t>(args, 0), data<std::int32_t>(args, 1),
                    {tokens.dim[0], tokens.dim[1], args.attrs[0].i, args.attrs[1].i},
                    data<const std::int32_t>(args, 2), static_cast<std::int32_t*>(args.workspace),
                    stream_of(context));
}

void ahead(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  cuda::ahead(data<const std::int32_t>(args, 0), data<std::int32_t>(args, 1),
              {x.dim[0], x.dim[1], args.attrs[0].i, static_cast<std::int32_t>(args.attrs[1].i)},
              data<const std::int32_t>(args, 3), data<const std::int32_t>(args, 2),
              static_cast<std::int32_t*>(args.workspace), stream_of(context));
}

Kernel select_ahead(const OpShape& s) {
  return s.operand[0].dtype == DType::i32 && s.operand[1].dtype == DType::i32 ? ahead : nullptr;
}

Kernel select_token_types(const OpShape& s) {
  return s.operand[0].dtype == DType::i32 && s.operand[1].dtype == DType::i32 ? token_types : nullptr;
}

Kernel select_document_starts(const OpShape& s) {
  return s.operand[0].dtype == DType::i32 && s.operand[1].dtype == DType::i32 ? document_starts : nullptr;
}

std::int64_t places_workspace(const OpShape& s, std::int32_t) { return s.operand[2].bytes(); }

}  // namespace

std::vector<DeviceOp> documents_ops(const OpChoices&) {
  return {{{"document_starts", select_document_starts, places_workspace}},
          {{"token_types", select_token_types, places_workspace}},
          {{"ahead", select_ahead, places_workspace}}};
}

}  // namespace prun::cuda
