// document_starts.
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

Kernel select_document_starts(const OpShape& s) {
  return s.operand[0].dtype == DType::i32 && s.operand[1].dtype == DType::i32 ? document_starts : nullptr;
}

std::int64_t document_starts_workspace(const OpShape& s, std::int32_t) { return s.operand[2].bytes(); }

}  // namespace

std::vector<DeviceOp> documents_ops(const OpChoices&) {
  return {{{"document_starts", select_document_starts, document_starts_workspace}}};
}

}  // namespace prun::cuda
