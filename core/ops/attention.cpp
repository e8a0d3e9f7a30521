// The op attention computes softmax(q k^T / sqrt(head_dim)) v, causal or full, grouped-query: the `queries`
// of a head group share its key and value (ops/packed_heads.hpp). Backward reads the result and the log of
// each row's sum of exponentials, which are kept. `documents` (ops/documents.cpp) keeps documents apart:
// position i sees no key before documents[i]. `window`: under a causal mask position i sees no further back
// than itself and the window - 1 before it; 0: all of them. attention_across and its gradient are the same
// where ranks share out the sequence: queries are of some positions, keys and values of all, which have a
// dimension of their own, in order. attention_at is the same for some positions at a time, where text is
// made. attention_packed and its gradient are the same on the packed projection itself. No model needs them:
// a device may put them in, instead of taking the projection apart and putting the gradient together.
#include <algorithm>
#include <vector>

#include "ops/at_position.hpp"
#include "ops/packed_heads.hpp"
#include "ops/positions.hpp"

namespace prun {
namespace {

constexpr AttrDef mask_attrs[] = {int_attr("causal", 1), later(int_attr("window", 0))};

void check_mask(const OpShape& s, const char* op) {
  require(s.attrs[1].i >= 0 && (s.attrs[1].i == 0 || s.attrs[0].i == 1), op,
          " takes a window from 0 on, and under a causal mask only");
}

// Counts the two products of forward; a causal mask halves them.
double attention_flops(const OperandShape& q, std::int64_t keys, bool causal) {
  return 4.0 * static_cast<double>(q.elements()) * static_cast<double>(keys) * (causal ? 0.5 : 1.0);
}

// Counts them with all keys of the sequence; a window leaves a band of them.
double attention_flops(const OperandShape& q, const Attr* attrs) {
  const double seq = static_cast<double>(q.dims[1].extent), window = static_cast<double>(attrs[1].i);
  if (window == 0 || window >= seq) return attention_flops(q, q.dims[1].extent, attrs[0].i != 0);
  return attention_flops(q, q.dims[1].extent, false) * (window - 0.5 * window * window / seq) / seq;
}

// Sets the shape of the log of the sum of exponentials of queries q.
void set_lse(OpShape& s, const OperandShape& q, int lse) {
  const Dim dims[] = {q.dims[0], q.dims[2], q.dims[3], q.dims[1]};
  s.output(lse, OpShape::statistics(q.dtype), dims, 4);
}

// Checks the operand `documents` beside queries in operand q. It grows along the sequence, and later keys are
// masked anyway.
void check_apart_documents(const OpShape& s, int q, int documents) {
  check_documents(s, q, documents, "attention");
  require(!s.operand[documents].present || s.attrs[0].i == 1,
          "attention keeps documents apart under a causal mask only");
}

struct Attention {
  static constexpr const char* kind = "attention";
  static constexpr const char* at_position = "attention_at";
  static constexpr const char* across = "attention_across";
  static constexpr const char* help = "scaled dot-product attention";
  static constexpr OperandDef operands[] = {
      {"q"}, {"k"}, {"v"}, {"y", Access::write}, {"lse", Access::write}, documents_operand};
  static constexpr const AttrDef (&attrs)[2] = mask_attrs;
  static void rule(OpShape& s) {
    check_apart(s, kind, 0);
    check_mask(s, kind);
    s.like(3, 0);
    set_lse(s, s.operand[0], 4);
    check_apart_documents(s, 0, 5);
    s.whole(0, 1, 2);
    s.whole(0, 4, 5);
  }
  static void gradient(const Gradient& g) {
    g.inputs(
        {0, 1, 2}, "attention_grad",
        {g.arrived(3), g.operand(0), g.operand(1), g.operand(2), g.operand(3), g.operand(4), g.operand(5)},
        {{"causal", g.attr("causal")}, {"window", g.attr("window")}});
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = attention_flops(s.operand[0], s.attrs); }
};

// Keeps the keys and values of all positions up to these: theirs are added to them.
struct AttentionAt {
  static constexpr const char* kind = "attention_at";
  static constexpr const char* help = "causal attention of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {{"q"},
                                            {"k"},
                                            {"v"},
                                            {"position"},
                                            {"kept_k", Access::update},
                                            {"kept_v", Access::update},
                                            {"y", Access::write},
                                            {"lse", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = mask_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_apart(s, kind, 0);
    require_position(s.operand[0], s.operand[3], kind);
    require(s.attrs[0].i == 1, "attention_at is causal: what lies behind a position is not there yet");
    check_mask(s, kind);
    check_kept(s, 4, 1);
    check_kept(s, 5, 2);
    s.like(6, 0);
    set_lse(s, s.operand[0], 7);
    s.whole(0, 1, 2);
    s.whole(0, 3, 5);
  }
  static void cost(const OpShape& s, OpCost& c) {
    const double half = 0.5 * static_cast<double>(s.operand[4].dims[1].extent),
                 window = static_cast<double>(s.attrs[1].i);
    c.flops =
        4.0 * static_cast<double>(s.operand[0].elements()) * (window > 0 ? std::min(window, half) : half);
  }

 private:
  // Checks that `kept` has all of `x`, by position.
  static void check_kept(OpShape& s, int kept, int x) {
    const OperandShape &all = s.operand[kept], &one = s.operand[x];
    bool alike = all.rank == one.rank && all.dtype == one.dtype;
    for (int d = 0; alike && d < one.rank; ++d)
      alike = d == 1 ? all.dims[d].extent >= one.dims[d].extent : all.dims[d] == one.dims[d];
    require(alike, "attention_at keeps keys and values as they come, of more positions");
    s.whole(kept, 1, 2);
  }
};

struct AttentionGrad {
  static constexpr const char* kind = "attention_grad";
  static constexpr const char* across = "attention_across_grad";
  static constexpr const char* help = "dq, dk and dv of attention, scores computed again";
  static constexpr OperandDef operands[] = {{"dy"},
                                            {"q"},
                                            {"k"},
                                            {"v"},
                                            {"y"},
                                            {"lse"},
                                            {"dq", Access::write},
                                            {"dk", Access::write},
                                            {"dv", Access::write},
                                            documents_operand};
  static constexpr const AttrDef (&attrs)[2] = mask_attrs;
  static void rule(OpShape& s) {
    check_apart(s, kind, 1);
    check_mask(s, kind);
    check_apart_documents(s, 1, 9);
    for (int i = 0; i < 3; ++i) s.like(6 + i, 1 + i);
    s.whole(1, 1, 2);
    s.sum(1, 3, 4);
    s.whole(1, 4, 5);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = 2.5 * attention_flops(s.operand[1], s.attrs); }
};

struct AttentionPacked {
  static constexpr const char* kind = "attention_packed";
  static constexpr const char* help = "split_heads and attention";
  static constexpr OperandDef operands[] = {
      {"x"}, {"y", Access::write}, {"lse", Access::write}, documents_operand};
  static constexpr const AttrDef (&attrs)[2] = mask_attrs;
  static void rule(OpShape& s) {
    const OperandShape q = queries_of(s, kind, 0);
    check_mask(s, kind);
    s.operand[1] = q;
    set_lse(s, q, 2);
    check_apart_documents(s, 0, 3);
    s.whole(0, 1, 2);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = attention_flops(s.operand[1], s.attrs); }
};

struct AttentionPackedGrad {
  static constexpr const char* kind = "attention_packed_grad";
  static constexpr const char* help = "attention_grad and join_heads";
  static constexpr OperandDef operands[] = {{"dy"},           {"x"}, {"y"}, {"lse"}, {"dx", Access::write},
                                            documents_operand};
  static constexpr const AttrDef (&attrs)[2] = mask_attrs;
  static void rule(OpShape& s) {
    queries_of(s, kind, 1);
    check_apart_documents(s, 1, 5);
    check_mask(s, kind);
    s.like(4, 1);
    s.whole(1, 1, 2);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = 2.5 * attention_flops(s.operand[2], s.attrs); }
};

// Queries are in order, or as prun/sequence_order.hpp says; keys and values are in order. `window` is how
// many keys, its own among them, a position sees at most; 0 means all. With `ahead`, keys and values are not
// those of all positions but those of each chunk of the queries, behind so many in front of it
// (ops/halo.cpp); a sequence has `parts` chunks.
constexpr AttrDef across_attrs[] = {int_attr("causal", 1),       int_attr("window", 0),
                                    int_attr("chunk", 0),        int_attr("chunks", 0),
                                    later(int_attr("ahead", 0)), later(int_attr("parts", 0))};

std::int64_t ahead_of(const Attr* attrs) { return attrs[4].i; }

// Returns how many chunks of queries there are beside keys that begin ahead of each.
std::int64_t chunks_of(const OperandShape& q, const OperandShape& k, const Attr* attrs) {
  return (k.dims[1].extent - q.dims[1].extent) / ahead_of(attrs);
}

// Returns how many positions a sequence has.
std::int64_t positions_of(const OperandShape& q, const OperandShape& k, const Attr* attrs) {
  return ahead_of(attrs) == 0 ? k.dims[1].extent : q.dims[1].extent / chunks_of(q, k, attrs) * attrs[5].i;
}

// Counts a part of the queries and all keys: the mean share under a mask, which is exact if each part has a
// chunk of front and back.
double across_flops(const OperandShape& q, const OperandShape& k, const Attr* attrs) {
  const std::int64_t all = positions_of(q, k, attrs);
  const double keys = static_cast<double>(all), window = static_cast<double>(attrs[1].i);
  if (window == 0 || window >= keys) return attention_flops(q, all, attrs[0].i != 0);
  return attention_flops(q, all, false) * (window - 0.5 * window * window / keys) / keys;
}

// Checks keys and values that begin ahead of each chunk of queries q. Their sequence is split as that of the
// queries.
void check_ahead(OpShape& s, const char* op, int q) {
  const Dim &queries = s.operand[q].dims[1], &keys = s.operand[q + 1].dims[1];
  const std::int64_t window = s.attrs[1].i, ahead = ahead_of(s.attrs), more = keys.extent - queries.extent;
  require(ahead > 0 && window > 0 && window <= ahead + 1 && s.attrs[0].i == 1, op,
          " takes keys from so many positions ahead of each chunk as its window reaches back, under a mask");
  require(keys.name == queries.name && more > 0 && more % ahead == 0 && queries.extent % (more / ahead) == 0,
          op, " takes keys of each chunk of the queries and of ", ahead, " positions ahead of it");
  OpShape alike = s;
  for (int i = q + 1; i <= q + 2; ++i)
    if (alike.operand[i].dims[1] == keys) alike.operand[i].dims[1] = queries;
  check_apart(alike, op, q);
}

// Checks keys and values of all positions beside queries q, whose sequence may be split then. Without a mask
// they may be those of another sequence, of the same length.
void check_all(OpShape& s, const char* op, int q) {
  const OperandShape& queries = s.operand[q];
  const Name all = s.operand[q + 1].dims[1].name;
  OpShape alike = s;
  for (int i = q + 1; i <= q + 2; ++i)
    if (alike.operand[i].rank > 1 && alike.operand[i].dims[1].name == all) {
      Dim& keys = alike.operand[i].dims[1];
      const bool other = s.attrs[0].i == 0 && keys.extent == s.operand[q + 1].dims[1].extent;
      keys = {queries.dims[1].name, other ? queries.dims[1].extent : keys.extent};
    }
  require(s.attrs[1].i == 0 || (s.attrs[1].i > 0 && s.attrs[0].i == 1), op,
          " takes a window from 0 on, and under a causal mask only");
  require(all != queries.dims[1].name, op,
          " takes keys and values whose positions have a dimension of their own");
  check_apart(alike, op, q);
  s.whole(q + 1, 1, 2);
}

void check_across(OpShape& s, const char* op, int q) {
  if (ahead_of(s.attrs) == 0)
    check_all(s, op, q);
  else
    check_ahead(s, op, q);
  // On another axis heads come before a part of the positions, which queries would otherwise keep.
  s.prefer(s.operand[q].dims[2].name);
  s.prefer(s.operand[q].dims[3].name);
  s.whole(q, 4, 5);
}

struct AttentionAcross {
  static constexpr const char* kind = "attention_across";
  static constexpr const char* help = "attention of a part of the positions to all of them";
  static constexpr OperandDef operands[] = {
      {"q"}, {"all_k"}, {"all_v"}, {"y", Access::write}, {"lse", Access::write}, documents_operand};
  static constexpr const AttrDef (&attrs)[6] = across_attrs;
  static void rule(OpShape& s) {
    check_across(s, kind, 0);
    s.like(3, 0);
    set_lse(s, s.operand[0], 4);
    check_apart_documents(s, 0, 5);
  }
  static void gradient(const Gradient& g) {
    g.inputs(
        {0, 1, 2}, "attention_across_grad",
        {g.arrived(3), g.operand(0), g.operand(1), g.operand(2), g.operand(3), g.operand(4), g.operand(5)},
        {{"causal", g.attr("causal")},
         {"window", g.attr("window")},
         {"chunk", g.attr("chunk")},
         {"chunks", g.attr("chunks")},
         {"ahead", g.attr("ahead")},
         {"parts", g.attr("parts")}});
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = across_flops(s.operand[0], s.operand[1], s.attrs);
  }
};

struct AttentionAcrossGrad {
  static constexpr const char* kind = "attention_across_grad";
  static constexpr const char* help = "dq of attention_across, and what its queries add to dk and dv of all";
  static constexpr OperandDef operands[] = {{"dy"},
                                            {"q"},
                                            {"all_k"},
                                            {"all_v"},
                                            {"y"},
                                            {"lse"},
                                            {"dq", Access::write},
                                            {"all_dk", Access::write},
                                            {"all_dv", Access::write},
                                            documents_operand};
  static constexpr const AttrDef (&attrs)[6] = across_attrs;
  static void rule(OpShape& s) {
    check_across(s, kind, 1);
    check_apart_documents(s, 1, 9);
    for (int i = 0; i < 3; ++i) s.like(6 + i, 1 + i);
    if (ahead_of(s.attrs) == 0) s.sum(1, 1, 2);
    s.sum(1, 3, 4);
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = 2.5 * across_flops(s.operand[1], s.operand[2], s.attrs);
  }
};

}  // namespace

std::vector<OpDef> attention_ops() {
  return {op_def<Attention>(),          op_def<AttentionAt>(),         op_def<AttentionGrad>(),
          op_def<AttentionPacked>(),    op_def<AttentionPackedGrad>(), op_def<AttentionAcross>(),
          op_def<AttentionAcrossGrad>()};
}

}  // namespace prun
