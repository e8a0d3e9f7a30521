// Implements attention_cudnn.hpp in a build that found no headers of cuDNN or its frontend.
#include "attention/cuda_pieces.hpp"
#include "prun/error.hpp"

namespace prun::cuda {

struct CudnnGraph {};
struct CudnnAttention::Impl {};

std::string cudnn_absence() {
  return "this build is without cuDNN's attention, since tools/setup had no headers for it";
}

namespace {
[[noreturn]] void refuse() { throw_error(ErrorCode::unsupported, cudnn_absence()); }
}  // namespace

CudnnPlan::CudnnPlan(std::unique_ptr<CudnnGraph>) {}
CudnnPlan::CudnnPlan(CudnnPlan&&) noexcept = default;
CudnnPlan& CudnnPlan::operator=(CudnnPlan&&) noexcept = default;
CudnnPlan::~CudnnPlan() = default;
std::int64_t CudnnPlan::workspace() const { refuse(); }
std::string CudnnPlan::algorithm() const { refuse(); }

CudnnAttention::CudnnAttention(const std::string&) { refuse(); }
CudnnAttention::~CudnnAttention() = default;
std::string CudnnAttention::version() const { refuse(); }
const std::string& CudnnAttention::path() const { refuse(); }
CudnnPlan CudnnAttention::prepare(const AttentionLayout&, Stream) const { refuse(); }
CudnnPlan CudnnAttention::prepare_backward(const AttentionLayout&, bool, Stream) const { refuse(); }
template <class T>
void CudnnAttention::run(const CudnnPlan&, const AttentionForward<T>&) const {
  refuse();
}
template <class T>
void CudnnAttention::run(const CudnnPlan&, const AttentionBackward<T>&) const {
  refuse();
}
template void CudnnAttention::run(const CudnnPlan&, const AttentionForward<bf16>&) const;
template void CudnnAttention::run(const CudnnPlan&, const AttentionForward<f16>&) const;
template void CudnnAttention::run(const CudnnPlan&, const AttentionBackward<bf16>&) const;
template void CudnnAttention::run(const CudnnPlan&, const AttentionBackward<f16>&) const;
void CudnnAttention::forget(Stream) const { refuse(); }

}  // namespace prun::cuda
