#include "sum.hpp"

#include "cuda/rank_sum.hpp"
#include "prun/error.hpp"

namespace prun::copies {
namespace {

static_assert(most_members == cuda::most_ranks_summed);

template <class T>
void fold_as(const Summands& of, int blocks, cudaStream_t stream) {
  cuda::RankParts parts{};
  parts.ranks = of.members;
  for (std::int32_t i = 0; i < of.members; ++i) parts.part[i] = of.from[static_cast<std::size_t>(i)];
  T* const to = reinterpret_cast<T*>(of.to);
  if (of.reduction == Reduction::sum)
    cuda::sum_ranks<T>(parts, to, of.count, blocks, stream);
  else
    cuda::largest_of_ranks<T>(parts, to, of.count, blocks, stream);
}

}  // namespace

void check_can_fold(const CommOp& op, const std::string& group) {
  const bool reduces = op.kind == CommKind::all_reduce || op.kind == CommKind::reduce_scatter;
  if (reduces && (op.dtype == DType::u8 || op.dtype == DType::u16))
    throw_error(ErrorCode::unsupported, "comm copies: ", group, "there is no ", name_of(op.kind), " of ",
                name_of(op.dtype));
}

void load_folds() {
  cuda::load_rank_sums<double>();
  cuda::load_rank_sums<float>();
  cuda::load_rank_sums<bf16>();
  cuda::load_rank_sums<f16>();
  cuda::load_rank_sums<std::int32_t>();
  cuda::load_rank_sums<std::int64_t>();
}

void fold(const Summands& summands, int blocks, cudaStream_t stream) {
  switch (summands.dtype) {
    case DType::f64: return fold_as<double>(summands, blocks, stream);
    case DType::f32: return fold_as<float>(summands, blocks, stream);
    case DType::bf16: return fold_as<bf16>(summands, blocks, stream);
    case DType::f16: return fold_as<f16>(summands, blocks, stream);
    case DType::i32: return fold_as<std::int32_t>(summands, blocks, stream);
    case DType::i64: return fold_as<std::int64_t>(summands, blocks, stream);
    case DType::u8:
    case DType::u16: break;
  }
  throw_error(ErrorCode::unsupported, "comm copies: no sum of ", name_of(summands.dtype));
}

}  // namespace prun::copies
