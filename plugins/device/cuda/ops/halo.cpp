// Launches what brings chunks of a sequence the positions in front of them (core/ops/halo.cpp).
#include "cuda/collective.hpp"
#include "cuda/elementwise.hpp"
#include "cuda/memory.hpp"
#include "device_op.hpp"
#include "prun/sequence_order.hpp"

namespace prun::cuda {
namespace {

// Says how a rank's part of the sequences is cut; sizes are in bytes, of rows of one position.
struct Chunks {
  std::int64_t samples, count, rows, reach, row_bytes;  // count: chunks of a sample here

  std::int64_t all() const { return samples * count; }
  std::int64_t chunk() const { return rows * row_bytes; }
  std::int64_t tail() const { return reach * row_bytes; }
};

// Makes it where `x` has `per_chunk` rows of each chunk.
Chunks chunks_of(const KernelArgs& args, const Tensor& x, std::int64_t per_chunk) {
  return {x.dim[0], x.dim[1] / per_chunk, args.attrs[0].i, args.attrs[1].i,
          x.inner(x.rank - 2) * size_of(x.dtype)};
}

void halo_tails(const KernelArgs& args, const KernelContext& context) {
  const Chunks c = chunks_of(args, args.operands[0], args.attrs[0].i);
  take(args.operands[0].data, args.operands[1].data, c.all(), c.chunk(), c.chunk() - c.tail(), c.tail(),
       stream_of(context));
}

// Calls body(place of the tail in front of a chunk among those of all, or -1; place in front of the chunk),
// in bytes.
template <class Body>
void for_halos(const KernelArgs& args, const Tensor& x, const Chunks& c, const Body& body) {
  const std::int64_t parts = args.attrs[2].i, chunks = args.attrs[3].i;
  const SequenceOrder order{chunks > 0 ? c.rows : 0, chunks};
  for (std::int64_t sample = 0; sample < c.samples; ++sample)
    for (std::int64_t j = 0; j < c.count; ++j) {
      const std::int64_t before = order.position(x.start[1] + j * c.rows) / c.rows - 1;
      body(before < 0 ? -1 : (sample * parts + before) * c.tail(),
           (sample * c.count + j) * (c.tail() + c.chunk()));
    }
}

void join_halo(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &halo = args.operands[1], &y = args.operands[2];
  const Chunks c = chunks_of(args, x, args.attrs[0].i);
  put(x.data, y.data, c.all(), c.tail() + c.chunk(), c.tail(), c.chunk(), stream_of(context));
  for_halos(args, x, c, [&](std::int64_t from, std::int64_t to) {
    if (from < 0)
      zero(y.as<char>() + to, c.tail(), stream_of(context));
    else
      copy(halo.as<const char>() + from, y.as<char>() + to, c.tail(), stream_of(context));
  });
}

void part_halo(const KernelArgs& args, const KernelContext& context) {
  const Tensor &y = args.operands[0], &x = args.operands[1], &halo = args.operands[2];
  const Chunks c = chunks_of(args, x, args.attrs[0].i);
  take(y.data, x.data, c.all(), c.tail() + c.chunk(), c.tail(), c.chunk(), stream_of(context));
  zero(halo.data, halo.elements() * size_of(halo.dtype), stream_of(context));
  for_halos(args, x, c, [&](std::int64_t to, std::int64_t from) {
    if (to >= 0) copy(y.as<const char>() + from, halo.as<char>() + to, c.tail(), stream_of(context));
  });
}

template <class T>
void add_tails(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &tails = args.operands[1], &y = args.operands[2];
  const Chunks c = chunks_of(args, y, args.attrs[0].i);
  const std::int64_t bytes = c.all() * c.chunk(), numbers = c.tail() / size_of(y.dtype);
  if (x.data)
    copy(x.data, y.data, bytes, stream_of(context));
  else
    zero(y.data, bytes, stream_of(context));
  for (std::int64_t i = 0; i < c.all(); ++i) {
    T* const to = y.as<T>() + ((i + 1) * c.chunk() - c.tail()) / size_of(y.dtype);
    add<T>(to, tails.as<const T>() + i * numbers, to, numbers, stream_of(context));
  }
}

// Says whether a rank has whole chunks.
bool has_chunks(const OpShape& s, int x) { return s.operand[x].dims[1].extent % s.attrs[0].i == 0; }

template <Kernel kernel, int x>
Kernel select_moves(const OpShape& s) {
  return has_chunks(s, x) ? kernel : nullptr;
}

Kernel select_add(const OpShape& s) {
  if (!same_type(s, {2, 0, 1}) || !has_chunks(s, 2)) return nullptr;
  return by_value(s.operand[2].dtype, []<class T>() -> Kernel { return add_tails<T>; });
}

}  // namespace

std::vector<DeviceOp> halo_ops(const OpChoices&) {
  return {{{"halo_tails", select_moves<halo_tails, 0>}},
          {{"join_halo", select_moves<join_halo, 0>}},
          {{"part_halo", select_moves<part_halo, 1>}},
          {{"add_tails", select_add}}};
}

}  // namespace prun::cuda
