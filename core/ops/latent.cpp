// Attention whose keys and values come out of a narrow latent vector (DeepSeek's MLA).
// split_latent takes a projection apart: the latent part, which is normed next, and the channels of the keys
// that turn with the position, which all heads share.
// latent_heads makes what attention takes: queries q[batch, seq, heads, head_dim], of whose channels the last
// `turned` turn; keys of kv's first channels beside the shared ones, turned; values of kv's last channels,
// with zeros up to the width of a key: attention knows one width. narrow_heads takes those columns off its
// result. Channels turn by pairs as `interleaved` says: neighbours, or channel i and i + turned / 2, which is
// how they lie in the result.
#include <vector>

#include "ops/at_position.hpp"
#include "ops/packed_heads.hpp"
#include "ops/positions.hpp"
#include "ops/turn.hpp"

namespace prun {
namespace {

// The first eight are rope's, for the channels that turn: whole queries are multiplied by `query_scale`, and
// the turning channels of queries and keys alike by `key_scale`. kernels/rope_frequency.hpp says what the
// others mean.
constexpr AttrDef latent_attrs[] = {
    real_attr("base", 10000.0),    real_attr("factor", 1.0),      real_attr("low", 1.0),
    real_attr("high", 4.0),        real_attr("original", 8192.0), int_attr("scaling", 0),
    real_attr("query_scale", 1.0), real_attr("key_scale", 1.0),   int_attr("turned", 2),
    int_attr("values", 1),         int_attr("interleaved", 1)};

std::int64_t turned_of(const OpShape& s) { return s.attrs[8].i; }
std::int64_t values_of(const OpShape& s) { return s.attrs[9].i; }

void check_widths(const OpShape& s, std::int64_t head_dim, const char* op) {
  const std::int64_t turned = turned_of(s), values = values_of(s);
  check_scaling(s, op);
  require(
      turned >= 2 && turned % 2 == 0 && turned < head_dim && values >= 1 && values <= head_dim, op,
      " turns an even number of channels, fewer than head_dim, and has values of head_dim channels at most");
}

// Checks operands x, x + 1 and x + 2: queries, keys and values by head, and what all heads share.
void check_latent(const OpShape& s, int x, const char* op) {
  const OperandShape &q = s.operand[x], &kv = s.operand[x + 1], &shared = s.operand[x + 2];
  require(q.rank == 4 && q.dims[3].name == Name("head_dim"), op,
          " takes queries [batch, seq, heads, head_dim]");
  check_widths(s, q.dims[3].extent, op);
  const std::int64_t own = q.dims[3].extent - turned_of(s) + values_of(s);
  bool alike = kv.rank == 4 && kv.dims[3] == Dim{"latent_head", own};
  for (int d = 0; alike && d < 3; ++d) alike = kv.dims[d] == q.dims[d];
  require(alike, op,
          " takes [batch, seq, heads, latent_head] with the channels of a key that do not turn, and its "
          "value's");
  require(shared.rank == 3 && shared.dims[0] == q.dims[0] && shared.dims[1] == q.dims[1] &&
              shared.dims[2] == Dim{"turned", turned_of(s)},
          op, " takes [batch, seq, turned] of all heads together");
}

// Sets the shapes of queries, keys and values of x taken apart, as attention takes them.
void set_heads(OpShape& s, int x, int q) {
  const OperandShape from = s.operand[x];
  const Dim queries[] = {from.dims[0], from.dims[1], from.dims[2], {"queries", 1}, from.dims[3]};
  s.output(q, from.dtype, queries, 5);
  s.output(q + 1, from.dtype, from.dims, 4);
  s.output(q + 2, from.dtype, from.dims, 4);
  s.whole(x, 3, 4);
  s.whole(x + 1, 3, 4);
  s.whole(x + 2, 2, 3);
  s.whole(Name("queries"));
}

struct LatentHeads {
  static constexpr const char* kind = "latent_heads";
  static constexpr const char* at_position = "latent_heads_at";
  static constexpr const char* help =
      "queries, keys and values of attention from a latent vector, turned by position";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"kv"},
                                            {"shared"},
                                            {"q", Access::write},
                                            {"k", Access::write},
                                            {"v", Access::write},
                                            positions_operand};
  static constexpr const AttrDef (&attrs)[11] = latent_attrs;
  static void rule(OpShape& s) {
    check_latent(s, 0, kind);
    set_heads(s, 0, 3);
    check_positions(s, 0, 6, kind);
  }
  static void gradient(const Gradient& g) {
    turn_back(g, {0, 1, 2}, "latent_heads_grad", {g.arrived(3), g.arrived(4), g.arrived(5), g.operand(6)},
              "turned", "values", "interleaved");
  }
};

struct LatentHeadsAt {
  static constexpr const char* kind = "latent_heads_at";
  static constexpr const char* help = "latent_heads of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"kv"},
                                            {"shared"},
                                            {"position"},
                                            {"q", Access::write},
                                            {"k", Access::write},
                                            {"v", Access::write}};
  static constexpr const AttrDef (&attrs)[11] = latent_attrs;
  static void rule(OpShape& s) {
    check_latent(s, 0, kind);
    require_position(s.operand[0], s.operand[3], kind);
    set_heads(s, 0, 4);
  }
};

struct LatentHeadsGrad {
  static constexpr const char* kind = "latent_heads_grad";
  static constexpr const char* help = "dx, dkv and dshared of latent_heads";
  static constexpr OperandDef operands[] = {{"dq"},
                                            {"dk"},
                                            {"dv"},
                                            {"dx", Access::write},
                                            {"dkv", Access::write},
                                            {"dshared", Access::write},
                                            positions_operand};
  static constexpr const AttrDef (&attrs)[11] = latent_attrs;
  static void rule(OpShape& s) {
    check_apart(s, kind, 0);
    const OperandShape q = s.operand[0];
    require(q.dims[3].extent == 1 && q.dims[4].name == Name("head_dim"), kind,
            " takes [batch, seq, heads, 1, head_dim]");
    check_widths(s, q.dims[4].extent, kind);
    const Dim own = {"latent_head", q.dims[4].extent - turned_of(s) + values_of(s)},
              turned = {"turned", turned_of(s)};
    const Dim x[] = {q.dims[0], q.dims[1], q.dims[2], q.dims[4]},
              kv[] = {q.dims[0], q.dims[1], q.dims[2], own}, shared[] = {q.dims[0], q.dims[1], turned};
    s.output(3, q.dtype, x, 4);
    s.output(4, q.dtype, kv, 4);
    s.output(5, q.dtype, shared, 3);
    s.whole(0, 3, 5);
    s.whole(own.name);
    s.whole(turned.name);
    s.sum(0, 2, 3);
    check_positions(s, 0, 6, kind);
  }
};

constexpr AttrDef turned_attr[] = {int_attr("turned", 2)};

// Splits one of two sides: `whole` [batch, seq, latents], of which the last `turned` are apart.
struct SplitLatent {
  static constexpr const char* kind = "split_latent";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the last channels of a projection apart from those before them";
  static constexpr OperandDef operands[] = {{"x"}, {"latent", Access::write}, {"shared", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = turned_attr;
  static void rule(OpShape& s) {
    const OperandShape x = s.operand[0];
    const std::int64_t turned = s.attrs[0].i;
    require(x.rank == 3 && x.dims[2].name == Name("latents") && turned > 0 && turned < x.dims[2].extent, kind,
            " takes [batch, seq, latents] of more channels than `turned`");
    const Dim latent[] = {x.dims[0], x.dims[1], {"latent", x.dims[2].extent - turned}},
              shared[] = {x.dims[0], x.dims[1], {"turned", turned}};
    s.output(1, x.dtype, latent, 3);
    s.output(2, x.dtype, shared, 3);
    for (const char* name : {"latents", "latent", "turned"}) s.whole(Name(name));
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) { g.input(0, "join_latent", {g.arrived(1), g.arrived(2)}); }
};

struct JoinLatent {
  static constexpr const char* kind = "join_latent";
  static constexpr const char* help = "channels side by side: dx of split_latent";
  static constexpr OperandDef operands[] = {{"latent"}, {"shared"}, {"x", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape &latent = s.operand[0], &shared = s.operand[1];
    require(latent.rank == 3 && shared.rank == 3 && latent.dims[0] == shared.dims[0] &&
                latent.dims[1] == shared.dims[1],
            kind, " takes [batch, seq, latent] and [batch, seq, turned]");
    const Dim x[] = {
        latent.dims[0], latent.dims[1], {"latents", latent.dims[2].extent + shared.dims[2].extent}};
    s.whole(0, 2, 3);
    s.whole(1, 2, 3);
    s.output(2, latent.dtype, x, 3);
    s.whole(x[2].name);
    s.pass_partial({0, 1});
  }
};

constexpr AttrDef width_attrs[] = {int_attr("values", 1), int_attr("head_dim", 1)};

// Sets the result to operand 0 [batch, seq, heads, queries, from] with the channels of `to`.
void set_width(OpShape& s, const char* op, const Dim& from, const Dim& to) {
  const OperandShape& x = s.operand[0];
  require(s.attrs[0].i > 0 && s.attrs[0].i <= s.attrs[1].i, op, " takes `values` of `head_dim` channels");
  require(x.rank == 5 && x.dims[4] == from, op,
          " takes [batch, seq, heads, queries, channels] of the width it is told");
  s.like(1, 0);
  s.operand[1].dims[4] = to;
  s.whole(0, 4, 5);
  s.whole(1, 4, 5);
  s.pass_partial({0});
}

struct NarrowHeads {
  static constexpr const char* kind = "narrow_heads";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the first channels of each head";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = width_attrs;
  static void rule(OpShape& s) {
    set_width(s, kind, {"head_dim", s.attrs[1].i}, {"value_dim", s.attrs[0].i});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "widen_heads", {g.arrived(1)},
            {{"values", g.attr("values")}, {"head_dim", g.attr("head_dim")}});
  }
};

struct WidenHeads {
  static constexpr const char* kind = "widen_heads";
  static constexpr const char* help = "dx of narrow_heads: zeros behind the channels of each head";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = width_attrs;
  static void rule(OpShape& s) {
    set_width(s, kind, {"value_dim", s.attrs[0].i}, {"head_dim", s.attrs[1].i});
  }
};

}  // namespace

std::vector<OpDef> latent_ops() {
  return {op_def<LatentHeads>(), op_def<LatentHeadsAt>(), op_def<LatentHeadsGrad>(), op_def<SplitLatent>(),
          op_def<JoinLatent>(),  op_def<NarrowHeads>(),   op_def<WidenHeads>()};
}

}  // namespace prun
