// The gradients of the gated delta rule on tensor cores.
#include "delta_rule/cuda_tensor.cuh"

namespace prun::cuda {
namespace {

using namespace tensor_delta_parts;

__global__ __launch_bounds__(many) void scan_back_kernel(Inputs in, const bf16* dy) {
  extern __shared__ __align__(128) unsigned char memory[];
  Scan<true>(in, dy, memory).run();
}

struct Slopes {
  const bf16* dy;
  bf16 *dq, *dk, *dv;
  float *dg, *dbeta;
};

// Has sums over a row of the chunk's matrices, one for each part of the columns, and over a column, one for
// each strip of rows; then what a place adds to the slope of decays, and what it leaves in the state behind.
struct alignas(16) Partial {
  float slopes[places], behind[places];
  float sums[4][places], left[4][places], share[4][places], columns[4][places];
  float states[most / 32];
};

constexpr int grad_bytes = 7 * tile_bytes<width>(places) + 2 * tile_bytes<width>(width) +
                           3 * tile_bytes<places>(places) + static_cast<int>(sizeof(Marks) + sizeof(Partial));

// Computes the gradients of a chunk of a key head, with those of its values one after the other. dX is the
// gradient of corrections, Y = T^T dX that of what the system is solved for, D that of the state behind.
struct Grad {
  const Inputs& in;
  const Slopes& to;
  const Hold at;
  Tile<width> queries, keys, values, dy, corrected, dcorrected, solved, state, dstate;
  Tile<places> inverse, slope, debt;
  Marks* m;
  Partial* partial;
  int channel, column;  // that products of the thread's warp begin at, of 128 and of 64
  float dq[4][4], dk[4][4];
  float sums[2], left[2], share[2];  // of the thread's rows

  __device__ Grad(const Inputs& inputs, const Slopes& slopes, unsigned char* memory)
      : in(inputs), to(slopes) {
    Shared shared{memory};
    queries = shared.tile<width>(places);
    keys = shared.tile<width>(places);
    values = shared.tile<width>(places);
    dy = shared.tile<width>(places);
    corrected = shared.tile<width>(places);
    dcorrected = shared.tile<width>(places);
    solved = shared.tile<width>(places);
    state = shared.tile<width>(width);
    dstate = shared.tile<width>(width);
    inverse = shared.tile<places>(places);
    slope = shared.tile<places>(places);
    debt = shared.tile<places>(places);
    m = shared.take<Marks>(1);
    partial = shared.take<Partial>(1);
    channel = 32 * at.part;
    column = 16 * at.part;
    clear(dq);
    clear(dk);
  }

  __device__ void load_all(const Head& h, const Chunk& c, bool first) {
    if (first) {
      copy_rows<places, most>(queries, in.q + c.key, c.keys_row, c.count);
      copy_rows<places, most>(keys, in.k + c.key, c.keys_row, c.count);
    }
    copy_rows<places, most>(values, in.v + c.gate * width, h.values * width, c.count);
    copy_rows<places, most>(dy, to.dy + c.gate * width, h.values * width, c.count);
    copy_rows<places, most>(corrected, in.room.corrected + c.number * chunk_numbers, width);
    copy_rows<places, most>(dcorrected, in.room.dcorrected + c.number * chunk_numbers, width);
    copy_rows<places, most>(inverse, in.room.inverse + c.number * places * places, places);
    copy_marks(m, in.room.marks + c.number);
    commit_copies();
    copy_rows<width, most>(state, in.room.states + c.number * state_numbers, width);
    copy_rows<width, most>(dstate, in.room.dstates + c.number * state_numbers, width);
    commit_copies();
    wait_for_copies<1>();
#pragma unroll
    for (int r = 0; r < 2; ++r) sums[r] = left[r] = share[r] = 0;
  }

  // Solves for Y.
  __device__ void solve() {
    float y[4][4];
    clear(y);
    multiply<4>(Columns<places>{inverse, at.strip}, Columns<width>{dcorrected, channel}, y);
    round_rows(y, at, solved, channel);
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) share[r] += with(values, i, at.row(r), y[i][2 * r], y[i][2 * r + 1]);
    __syncthreads();
  }

  // Stores Y's share of values, by way of dX's tile, where each thread reads what it wrote.
  __device__ void store_values(const Head& h, const Chunk& c) const {
    constexpr int packs = width / 8;
    const int row = thread_over(packs), from = thread_modulo(packs) * 8;
#pragma unroll
    for (int i = 0; i < places; i += most / packs) {
      Lanes<float, 8> y = load_lanes<8>(solved.at(row + i, from));
#pragma unroll
      for (int e = 0; e < 8; ++e) y[e] *= m->share[row + i];
      store_lanes(dcorrected.at(row + i, from), y);
    }
    store_tile<places, most>(dcorrected, to.dv + c.gate * width, h.values * width, c.count);
  }

  // Weighs what positions of the chunk have to do with each other.
  __device__ void weigh() {
    float of_keys[2][4], of_queries[2][4];
    clear(of_keys);
    clear(of_queries);
    multiply<8>(Rows<width>{keys, at.strip}, Rows<width>{keys, column}, of_keys);
    multiply<8>(Rows<width>{queries, at.strip}, Rows<width>{keys, column}, of_queries);
    float read[2][4], owed[2][4];
    clear(read);
    clear(owed);
    multiply<8>(Rows<width>{dy, at.strip}, Rows<width>{corrected, column}, read);
    multiply<8>(Rows<width>{solved, at.strip}, Rows<width>{corrected, column}, owed);
    float down[2][2] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = at.row(r);
      const float by = m->share[row];
      float decay[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) decay[i][e] = m->decay(row, column + at.column(i) + e);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int own = column + at.column(i);
        float slopes[2], debts[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          slopes[e] = scale * decay[i][e] * read[i][2 * r + e];
          const float owes = own + e < row ? -decay[i][e] * owed[i][2 * r + e] : 0.0f;
          debts[e] = by * owes;
          const float both = slopes[e] * of_queries[i][2 * r + e] + debts[e] * of_keys[i][2 * r + e];
          sums[r] += both;
          down[i][e] += both;
          share[r] += owes * of_keys[i][2 * r + e];
        }
        slope.pair(row, own) = pair_of(slopes[0], slopes[1]);
        debt.pair(row, own) = pair_of(debts[0], debts[1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float all = down[i][e];
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2)
          all += __shfl_xor_sync(0xffffffffu, all, distance);
        if (at.line == 0) partial->columns[at.strip / 16][column + at.column(i) + e] = all;
      }
  }

  // Computes a product with rows of a state, and hands each pair of it to body(i, r, row, first, last).
  template <class Body>
  __device__ void meet(const Tile<width>& rows, const Tile<width>& of, const Body& body) {
    float product[4][4];
    clear(product);
    multiply<8>(Rows<width>{rows, at.strip}, Rows<width>{of, channel}, product);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) body(i, r, at.row(r), product[i][2 * r], product[i][2 * r + 1]);
  }

  __device__ float with(const Tile<width>& tile, int i, int row, float first, float last) const {
    const Lanes<float, 2> x = parts_of(tile.pair(row, channel + at.column(i)));
    return x[0] * first + x[1] * last;
  }

  __device__ void read_states() {
    meet(dy, state, [&](int i, int r, int row, float first, float last) {
      const float by = scale * m->seen[row];
      dq[i][2 * r] += by * first;
      dq[i][2 * r + 1] += by * last;
      sums[r] += by * with(queries, i, row, first, last);
    });
    meet(corrected, dstate, [&](int i, int r, int row, float first, float last) {
      const float by = m->left[row];
      dk[i][2 * r] += by * first;
      dk[i][2 * r + 1] += by * last;
      left[r] += by * with(keys, i, row, first, last);
    });
    meet(solved, state, [&](int i, int r, int row, float first, float last) {
      const float by = m->seen[row], all = m->share[row] * by, own = with(keys, i, row, first, last);
      dk[i][2 * r] -= all * first;
      dk[i][2 * r + 1] -= all * last;
      share[r] -= by * own;
      sums[r] -= all * own;
    });
    float product = 0;
    for (int i = static_cast<int>(threadIdx.x); i < width * width / 8; i += most) {
      const int row = i / (width / 8), from = i % (width / 8) * 8;
      const Lanes<float, 8> a = load_lanes<8>(state.at(row, from)), b = load_lanes<8>(dstate.at(row, from));
#pragma unroll
      for (int e = 0; e < 8; ++e) product += a[e] * b[e];
    }
    product = warp_fold(product, Add());
    if (thread_modulo(32) == 0) partial->states[thread_over(32)] = product;
  }

  __device__ void read_places() {
    const Columns<width> of_key{keys, channel}, of_query{queries, channel};
    multiply<4>(Rows<places>{slope, at.strip}, of_key, dq);
    multiply<4>(Columns<places>{slope, at.strip}, of_query, dk);
    multiply<4>(Rows<places>{debt, at.strip}, of_key, dk);
    multiply<4>(Columns<places>{debt, at.strip}, of_key, dk);
  }

  __device__ void add_up(const Head& h, const Chunk& c) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float all[3] = {quad_sum(sums[r]), quad_sum(left[r]), quad_sum(share[r])};
      if (at.first != 0) continue;
      partial->sums[at.part][at.row(r)] = all[0];
      partial->left[at.part][at.row(r)] = all[1];
      partial->share[at.part][at.row(r)] = all[2];
    }
    __syncthreads();
    const Partial& p = *partial;
    const int i = static_cast<int>(threadIdx.x);
    if (i < places) {
      float sum = 0, behind = 0;
      for (int part = 0; part < 4; ++part) {
        sum += p.sums[part][i] - p.columns[part][i];
        behind += p.left[part][i];
      }
      partial->slopes[i] = sum - behind;
      partial->behind[i] = behind;
    }
    __syncthreads();
    if (i < c.count) {
      const Totals slopes(p.slopes, i - 1), behind(p.behind, i);
      float states = 0, learnt = 0;
      for (int warp = 0; warp < most / 32; ++warp) states += p.states[warp];
      for (int part = 0; part < 4; ++part) learnt += p.share[part][i];
      // The gradient that is left behind decays with every place, as does the state in front.
      to.dg[c.gate + i * h.values] = slopes.all - slopes.some + behind.all + m->kept() * states;
      to.dbeta[c.gate + i * h.values] = learnt;
    }
    __syncthreads();
  }

  __device__ void run() {
    const Head first(in, blockIdx.y, 0);
    for (Index value = 0; value < in.of.values; ++value) {
      Head h = first;
      h.value += value;
      h.number += value * in.of.chunks();
      const Chunk c(in, h, blockIdx.x);
      load_all(h, c, value == 0);
      solve();
      weigh();
      wait_for_copies<0>();
      store_values(h, c);
      read_states();
      read_places();
      add_up(h, c);
    }
    const Chunk c(in, first, blockIdx.x);
    round_rows(dq, at, solved, channel);
    round_rows(dk, at, dcorrected, channel);
    __syncthreads();
    store_tile<places, most>(solved, to.dq + c.key, c.keys_row, c.count);
    store_tile<places, most>(dcorrected, to.dk + c.key, c.keys_row, c.count);
  }
};

static_assert(scan_bytes<true> <= grad_bytes && scan_bytes<false> <= grad_bytes);

__global__ __launch_bounds__(most, 1) void grad_kernel(Inputs in, Slopes slopes) {
  extern __shared__ __align__(128) unsigned char memory[];
  Grad(in, slopes, memory).run();
}

}  // namespace

std::int64_t tensor_delta_backward_workspace(const DeltaRuleSizes& sizes) {
  Room room;
  return lay_out(sizes, true, nullptr, room);
}

bool tensor_delta_backward(const DeltaRuleBackward<bf16>& call, Stream stream) {
  if (!aligned({call.dy, call.q, call.k, call.v, call.dq, call.dk, call.dv, call.workspace}) ||
      !may_share(grad_bytes))
    return false;
  Inputs in{call.sizes, call.q, call.k, call.v, call.g, call.beta, {}, 0};
  lay_out(in.of, true, call.workspace, in.room);
  const Slopes slopes{call.dy, call.dq, call.dk, call.dv, call.dg, call.dbeta};
  for_heads(in, [&](const Inputs& part, unsigned heads) {
    const unsigned values = heads * static_cast<unsigned>(part.of.values);
    scan_states(part, values, nullptr, stream);
    const dim3 chunks(grid_of(part.of.chunks()), values), slices(width / slice, values),
        of_keys(grid_of(part.of.chunks()), heads);
    allow(across_kernel<true>, across_bytes<true>);
    across_kernel<true><<<chunks, many, across_bytes<true>, stream>>>(part, call.dy, nullptr);
    check_launch("delta_rule_grad, corrections");
    allow(scan_back_kernel, scan_bytes<true>);
    scan_back_kernel<<<slices, many, scan_bytes<true>, stream>>>(part, call.dy);
    check_launch("delta_rule_grad, states");
    allow(grad_kernel, grad_bytes);
    grad_kernel<<<of_keys, most, grad_bytes, stream>>>(part, slopes);
    check_launch("delta_rule_grad, gradients");
  });
  return true;
}

}  // namespace prun::cuda
