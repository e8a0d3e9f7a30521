// Computes the bytes that a rank sends a step, as the papers say: closed formulas of the model's sizes. They
// know nothing of programs and plans; where prun sends something else than a paper says, a comment here says
// why.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace prun::test {

using Bytes = std::int64_t;

struct Sizes {
  bool llama = false, tied = false, sequence = false;
  std::int64_t batch = 2;  // counts sequences of a rank's microbatch
  std::int64_t seq = 64, hidden = 128, ffn = 512, heads = 4, kv_heads = 4, layers = 4, vocab = 128;
  std::int64_t microbatches = 2;
  std::int64_t dp = 1, pp = 1, tp = 1, cp = 1;
  std::string schedule = "1f1b";
  std::int64_t chunks = 1;  // counts stages a rank holds
  // These are for each layer; experts are shared out over dp where `experts` is not 0, and have `ffn` each.
  std::int64_t experts = 0, choices = 2;
  double rows = 0;  // 0: positions are gathered; else each goes to the ranks of its experts, with this budget
  std::int64_t window = 0;  // of all layers; 0: none
  bool zigzag = true;       // says that each rank of cp has two chunks of a sequence
};

// Says which part of the model the ranks of one coordinate of the pipeline hold.
struct Share {
  std::int64_t coordinate = 0, layers = 0;
  bool first = true, last = true;  // say that they hold embedding and head
};

inline Share share_of(const Sizes& s, std::int64_t coordinate) {
  const std::int64_t end = s.schedule == "zb-v" ? 0 : s.pp - 1;  // zb-v's chain comes back to the first rank
  return {coordinate, s.layers / s.pp, coordinate == 0, coordinate == end};
}

inline constexpr Bytes element = 4, scalar = 8;

// ---------------------------------------------------------------- exchanges

// Returns what a member sends of `bytes` that each of n members has. A ring sends 2(n-1)/n of them; a small
// exchange goes to all others at once, which is (n-1) times all of it and the same in a group of two.
inline Bytes all_reduce(Bytes bytes, std::int64_t n) {
  const Bytes small = 32 * 1024;
  return bytes <= small ? (n - 1) * bytes : 2 * (n - 1) * bytes / n;
}

// Returns it for `bytes` of n members together: an all-gather or reduce-scatter is half an all-reduce.
inline Bytes half(Bytes bytes, std::int64_t n) { return (n - 1) * bytes / n; }

// ---------------------------------------------------------------- parameters

enum class StatePlaces { whole, heads, ffn, vocab };  // are over tp

struct Parameter {
  std::int64_t elements;  // counts those of one rank of tp
  bool decays;            // holds for matrices and tables, not for vectors
  StatePlaces lies;
};
using Parameters = std::vector<Parameter>;

inline Parameters block(const Sizes& s) {
  const std::int64_t h = s.hidden, t = s.tp, qkv = h + 2 * h * s.kv_heads / s.heads;
  const std::int64_t up = s.llama ? 2 * s.ffn : s.ffn;
  Parameters list = {{qkv * h / t, true, StatePlaces::heads},
                     {h * h / t, true, StatePlaces::heads},
                     {up * h / t, true, StatePlaces::ffn},
                     {h * s.ffn / t, true, StatePlaces::ffn}};
  const std::int64_t norms_and_biases = s.llama ? 2 : 6;  // as wide as the residual stream
  list.insert(list.end(), static_cast<std::size_t>(norms_and_biases), {h, false, StatePlaces::whole});
  if (s.llama) return list;
  list.push_back({qkv / t, false, StatePlaces::heads});
  list.push_back({up / t, false, StatePlaces::ffn});
  return list;
}

inline Parameters embedding(const Sizes& s) {
  Parameters list = {{s.vocab * s.hidden / s.tp, true, StatePlaces::vocab}};
  if (!s.llama) list.push_back({s.seq * s.hidden, true, StatePlaces::whole});
  return list;
}

// A tied table counts where its owner is; of a pipeline's two ranks each has one.
inline Parameters head(const Sizes& s, const Share& share) {
  Parameters list(s.llama ? 1 : 2, {s.hidden, false, StatePlaces::whole});
  if (!s.tied || !share.first) list.push_back({s.vocab * s.hidden / s.tp, true, StatePlaces::vocab});
  return list;
}

// Counts the numbers that say of each tensor of the whole model whether its gradient is finite.
inline Bytes finite_counts(const Sizes& s) {
  const std::size_t head = (s.llama ? 1 : 2) + (s.tied ? 0 : 1);
  return scalar * static_cast<Bytes>(embedding(s).size() + head) +
         scalar * s.layers * static_cast<Bytes>(block(s).size());
}

inline Bytes bytes_of(const Parameters& list) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : list) elements += parameter.elements;
  return elements * element;
}

inline Bytes bytes_whole_over_tp(const Parameters& list) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : list)
    if (parameter.lies == StatePlaces::whole) elements += parameter.elements;
  return elements * element;
}

// Counts bytes as ZeRO packs: a bucket has tensors updated alike and lying alike, each padded to 128 elements
// and the bucket to as many for each rank.
inline Bytes packed(const Parameters& list, const Sizes& s) {
  const std::int64_t grain = 128;
  const auto up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
  std::map<std::pair<bool, StatePlaces>, std::int64_t> buckets;
  for (const Parameter& parameter : list)
    buckets[{parameter.decays, s.tp > 1 ? parameter.lies : StatePlaces::whole}] +=
        up(parameter.elements, grain);
  Bytes bytes = 0;
  for (const auto& [key, elements] : buckets) bytes += up(elements, s.dp * grain) * element;
  return bytes;
}

// ---------------------------------------------------------------- tensor parallelism

inline Bytes activation(const Sizes& s) { return s.batch * s.seq * s.hidden * element; }

// Counts one layer and microbatch. Megatron (Shoeybi et al., 2019) has two all-reduces forward and two
// backward. With sequence parallelism (Korthikanti et al., 2022) each becomes a reduce-scatter and an
// all-gather; since a rank keeps only its part of the input of a split matrix product, backward gathers both
// of these once more, which makes ten halves, two more than four all-reduces. `again` counts exchanges that
// recomputation repeats.
inline Bytes tensor_layer(const Sizes& s, std::int64_t again = 0) {
  return s.sequence ? (10 + again) * half(activation(s), s.tp)
                    : (4 + again) * all_reduce(activation(s), s.tp);
}

// Counts the sum of the looked-up rows, which leaves nothing to exchange backward; with sequence its result
// is scattered and its gradient gathered.
inline Bytes tensor_embedding(const Sizes& s) {
  return s.sequence ? 2 * half(activation(s), s.tp) : all_reduce(activation(s), s.tp);
}

// Counts the sum of the gradient of the input; and by row the largest logit, the sum of exponentials and the
// target's logit. With sequence, the input is gathered and its gradient scattered; of the rows' numbers, the
// latter two are scattered and the loss of a row gathered.
inline Bytes tensor_head(const Sizes& s) {
  const Bytes rows = s.batch * s.seq * element;
  return s.sequence ? 2 * half(activation(s), s.tp) + all_reduce(rows, s.tp) + 3 * half(rows, s.tp)
                    : all_reduce(activation(s), s.tp) + 3 * all_reduce(rows, s.tp);
}

// With sequence, each rank has summed the gradients of parameters that it keeps whole over its part of the
// sequence: they are all-reduced, as often as over dp. The scalars are the norm and whether to stop; with
// sequence, the loss. Beside the norm there are the numbers that say who is finite.
inline Bytes tensor(const Sizes& s, const Share& share, std::int64_t again = 0, std::int64_t reductions = 1) {
  const Bytes microbatch =
      share.layers * tensor_layer(s, again) + share.first * tensor_embedding(s) + share.last * tensor_head(s);
  const Bytes step = s.microbatches * microbatch + (s.sequence ? 3 : 2) * all_reduce(scalar, s.tp) +
                     all_reduce(finite_counts(s), s.tp);
  if (!s.sequence) return step;
  const auto gradients = [&](const Parameters& list) { return all_reduce(bytes_whole_over_tp(list), s.tp); };
  return step + reductions * (share.layers * gradients(block(s)) + share.first * gradients(embedding(s)) +
                              share.last * gradients(head(s, share)));
}

// ---------------------------------------------------------------- pipelines

// Counts boundaries over which a rank sends, forward or back: two for each stage it holds, but for the ends
// of the chain. In the V of zb-v the last rank keeps the turn to itself, and the first one has both ends.
inline std::int64_t crossings(const Sizes& s, const Share& share) {
  const bool top = share.coordinate == 0, bottom = share.coordinate == s.pp - 1;
  return 2 * s.chunks - (s.schedule == "zb-v" ? 2 * (top + bottom) : top + bottom);
}

// Each rank of tp sends all that is handed on, with sequence its part. The scalars are loss, norm, and
// whether to stop; and who is finite. A table that two ranks share has its gradient summed over these two.
inline Bytes pipeline(const Sizes& s, const Share& share) {
  const Bytes boundary = activation(s) / (s.sequence ? s.tp : 1);
  const bool shares_table = s.tied && share.first != share.last;
  return s.microbatches * crossings(s, share) * boundary + 3 * all_reduce(scalar, s.pp) +
         all_reduce(finite_counts(s), s.pp) +
         (shares_table ? all_reduce(s.vocab * s.hidden / s.tp * element, 2) : 0);
}

// ---------------------------------------------------------------- data parallelism and ZeRO

// Counts the sum of all gradients, once a step, whatever the number of microbatches. The scalars are loss,
// number of targets, and whether to stop.
inline Bytes data(const Sizes& s, const Share& share) {
  const auto sum = [&](const Parameters& list) { return all_reduce(bytes_of(list), s.dp); };
  return share.layers * sum(block(s)) + share.first * sum(embedding(s)) + share.last * sum(head(s, share)) +
         3 * all_reduce(scalar, s.dp);
}

// ---------------------------------------------------------------- sequences in parts

// Counts the chunks of a sequence.
inline std::int64_t chunks_of(const Sizes& s) { return s.zigzag ? 2 * s.cp : s.cp; }

// Says whether a rank gets what a window reaches in front of its chunks, since that is less than all.
inline bool by_reach(const Sizes& s) {
  return s.window > 0 && chunks_of(s) / s.cp * (s.window - 1 + s.seq / chunks_of(s)) < s.seq;
}

// Counts the positions that rank `at` sends of a sample: of each chunk those that a chunk behind reads,
// unless it has that one itself; or, back, their gradients to where they came from.
inline std::int64_t positions_sent(const Sizes& s, std::int64_t at, bool back) {
  const std::int64_t chunks = chunks_of(s), rows = s.seq / chunks, reach = s.window - 1;
  const auto owner = [&](std::int64_t chunk) {
    return s.zigzag ? std::min(chunk, chunks - 1 - chunk) : chunk;
  };
  std::int64_t sent = 0;
  for (std::int64_t reader = 0; reader < chunks; ++reader)
    for (std::int64_t d = 1; d <= reader && (d - 1) * rows < reach; ++d)
      if (owner(reader) != owner(reader - d) && owner(back ? reader : reader - d) == at)
        sent += std::min(rows, reach - (d - 1) * rows);
  return sent;
}

// Counts keys, or values, of one layer and microbatch, of so many positions.
inline Bytes keys_of(const Sizes& s, std::int64_t positions) {
  return s.batch * positions * (s.llama ? s.kv_heads : s.heads) * (s.hidden / s.heads) * element;
}
inline Bytes keys_of_layer(const Sizes& s) { return keys_of(s, s.seq); }

// Keys and values come together in front of attention, forward and, since values kept for backward lie in
// parts, once more backward, and their gradients go back in parts. Queries stay where they are. Gradients of
// parameters are summed as those of data parallelism.
// Of a window, each rank sends only what it has that another one reads.
inline Bytes context_layer(const Sizes& s, std::int64_t at = 0) {
  if (!by_reach(s)) return 6 * half(keys_of_layer(s), s.cp);
  return keys_of(s, 4 * positions_sent(s, at, false) + 2 * positions_sent(s, at, true));
}

inline Bytes context(const Sizes& s, const Share& share, std::int64_t at = 0) {
  Sizes as_data = s;
  as_data.dp = s.cp;
  return s.microbatches * share.layers * context_layer(s, at) + data(as_data, share);
}

// ---------------------------------------------------------------- experts

// Counts one layer and microbatch, where dp shares out experts: positions come together with their choices
// and weights, and results go back in parts; backward their gradients come together and those of positions
// and of weights go back. Values kept for backward lie in parts, so that backward gathers positions, choices
// and weights once more: five halves of what the ranks have together where keeping them whole would leave
// four.
inline Bytes experts_layer(const Sizes& s) {
  const Bytes positions = s.dp * s.batch * s.seq, x = positions * s.hidden * element,
              numbers = positions * s.choices * 4;  // choices are in i32, weights in fp32
  return 5 * half(x, s.dp) + 2 * 2 * half(numbers, s.dp) + half(numbers, s.dp);
}

// Counts the rows of a sequence that a rank can take: the budget, times the positions that have one of its
// experts among their choices if all choices are as likely, and the sequence at most.
inline std::int64_t rows_of(const Sizes& s) {
  double none = 1;  // is the share of positions that choose none of them
  for (std::int64_t c = 0; c < s.choices; ++c)
    none *= static_cast<double>(s.experts - s.experts / s.dp - c) / static_cast<double>(s.experts - c);
  const double most = std::ceil(s.rows * static_cast<double>(s.seq) * std::max(0.0, 1 - none) * (1 - 1e-12));
  return std::min(s.seq, static_cast<std::int64_t>(most));
}

// Counts one layer and microbatch where each position goes to the ranks of its experts: what is gathered
// otherwise, for so many rows instead of all positions. Backward sends them once more.
inline Bytes sent_rows_layer(const Sizes& s) {
  const Bytes rows = s.batch * rows_of(s);
  return (s.dp - 1) * rows * (5 * s.hidden * element + 20 * s.choices);
}

// All ranks have the router alike, in the place of the MLP. Experts' gradients stay where they are.
inline Bytes shared_gradients(const Sizes& s) {
  const std::int64_t h = s.hidden, qkv = h + 2 * h * s.kv_heads / s.heads;
  return all_reduce((qkv * h + h * h + s.experts * h + 2 * h) * element, s.dp);
}

// The scalars are those of data parallelism, and the norm and who is finite, since ranks have other experts.
// The counts of choices, by layer and expert, are in fp64, and so are those of rows.
inline Bytes experts(const Sizes& s, const Share& share) {
  const auto sum = [&](const Parameters& list) { return all_reduce(bytes_of(list), s.dp); };
  const Bytes tensors = static_cast<Bytes>(embedding(s).size() + head(s, share).size()) + s.layers * 7;
  const Bytes layer = s.rows > 0 ? sent_rows_layer(s) : experts_layer(s),
              bounds = s.rows > 0 ? all_reduce(2 * scalar * s.layers, s.dp) : 0;
  return s.microbatches * s.layers * layer + s.layers * shared_gradients(s) + sum(embedding(s)) +
         sum(head(s, share)) + 4 * all_reduce(scalar, s.dp) + all_reduce(scalar * tensors, s.dp) +
         all_reduce(scalar * s.layers * s.experts, s.dp) + bounds;
}

// By heads, queries, keys and values go from parts of the sequence to parts of the heads, the result back,
// and the same of their gradients: each rank keeps one part of cp.
inline Bytes by_heads_layer(const Sizes& s) {
  const Bytes queries = s.batch * s.seq * s.hidden * element;
  return 4 * (half(queries, s.cp) + half(keys_of_layer(s), s.cp)) / s.cp;
}

inline Bytes by_heads(const Sizes& s, const Share& share) {
  Sizes as_data = s;
  as_data.dp = s.cp;
  return s.microbatches * share.layers * by_heads_layer(s) + data(as_data, share);
}

// Counts what is gathered a step, where a layer is larger than embedding and head. Parameters stay where they
// are until others are gathered there.
struct Gathers {
  std::int64_t layers, embedding, head;
};

// A pass turns at either end and finds its first layer as the one before left it: each microbatch saves the
// last layer's gathering before backward and, but for the first one, the first layer's before forward.
// Embedding and head have the memory of the second layer from the end.
inline Gathers gathers_of_whole(const Sizes& s) {
  const std::int64_t m = s.microbatches;
  return {2 * m * (s.layers - 1) + 1, m, m};
}

// Counts gathers of a stage of two layers. The first stage goes from its end to its beginning, needs its
// embedding beside either layer, and keeps all it gathers. The last stage turns at the head, which has the
// memory of its first layer.
inline Gathers gathers_of_stage_of_two(const Sizes& s, const Share& share) {
  return share.last ? Gathers{s.microbatches + 2, 0, s.microbatches} : Gathers{2, 1, 0};
}

// The scalars are those of data parallelism, the norm of each rank's part and who is finite in it; over tp,
// what is kept whole there has these two of its own.
inline Bytes zero_scalars(const Sizes& s) {
  const std::int64_t sums = s.tp > 1 ? 2 : 1;
  return (3 + sums) * all_reduce(scalar, s.dp) + sums * all_reduce(finite_counts(s), s.dp);
}

// `reductions`, how often a step gradients are reduced, is the paper's r. Up to stage 2 everything is
// gathered once, behind its update.
inline Bytes zero(const Sizes& s, const Share& share, int stage, std::int64_t reductions) {
  Gathers gathers{share.layers, share.first, share.last};
  if (stage == 3) gathers = s.pp > 1 ? gathers_of_stage_of_two(s, share) : gathers_of_whole(s);
  return (gathers.layers + share.layers * reductions) * half(packed(block(s), s), s.dp) +
         (gathers.embedding + share.first * reductions) * half(packed(embedding(s), s), s.dp) +
         (gathers.head + share.last * reductions) * half(packed(head(s, share), s), s.dp) + zero_scalars(s);
}

// Stage 3 as the paper has it (Rajbhandari et al., 2020): (2m + r) (d-1)/d of all parameters.
inline Bytes zero3_bound(const Sizes& s, const Share& share, std::int64_t reductions) {
  const Bytes all = share.layers * half(packed(block(s), s), s.dp) +
                    share.first * half(packed(embedding(s), s), s.dp) +
                    share.last * half(packed(head(s, share), s), s.dp);
  return (2 * s.microbatches + reductions) * all + zero_scalars(s);
}

// Counts, with a copy of the parameters among the `within` ranks of each host (ZeRO++'s hpZ, Wang et al.,
// 2023): a rank brings its share of that from the other hosts once a step, where ZeRO++ gathers all of it
// over all ranks with each forward.
inline Bytes copied_between_hosts(const Sizes& s, const Share& share, std::int64_t within) {
  const auto brought = [&](const Parameters& list) { return half(packed(list, s) / within, s.dp / within); };
  return share.layers * brought(block(s)) + share.first * brought(embedding(s)) +
         share.last * brought(head(s, share));
}

// Counts the gathers that stage 3 has anyway: they are over those ranks alone.
inline Bytes gathered_within_hosts(const Sizes& s, const Share& share, std::int64_t within) {
  const Gathers gathers = gathers_of_whole(s);
  return gathers.layers * half(packed(block(s), s), within) +
         gathers.embedding * half(packed(embedding(s), s), within) +
         gathers.head * half(packed(head(s, share), s), within);
}

}  // namespace prun::test
