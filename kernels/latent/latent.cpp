#include "prun/ops/latent.hpp"
#include "prun/named_gradient.hpp"

#include <vector>

#include "rules/at_position.hpp"
#include "rules/packed_heads.hpp"
#include "rules/positions.hpp"
#include "rules/turn.hpp"

namespace prun::ops {
namespace {

template <class Op>
void check_widths(const ShapeOf<Op>& s, std::int64_t head_dim) {
  const std::int64_t turned = s.integer("turned"), values = s.integer("values");
  check_scaling(s.integer("scaling"), Op::kind);
  require(
      turned >= 2 && turned % 2 == 0 && turned < head_dim && values >= 1 && values <= head_dim, Op::kind,
      " turns an even number of channels, fewer than head_dim, and has values of head_dim channels at most");
}

// Returns how many channels of each head come out of the latent vector, where keys have `head_dim`.
template <class Op>
std::int64_t own_channels(const ShapeOf<Op>& s, std::int64_t head_dim) {
  return head_dim - s.integer("turned") + s.integer("values");
}

// Checks queries, keys and values by head, and what all heads share.
template <class Op>
void check_latent(const ShapeOf<Op>& s) {
  const char* const op = Op::kind;
  const OperandShape &q = s["x"], &kv = s["kv"], &shared = s["shared"];
  require(q.rank == 4 && q.dims[3].name == Name("head_dim"), op,
          " takes queries [batch, seq, heads, head_dim]");
  check_widths(s, q.dims[3].extent);
  const std::int64_t own = own_channels(s, q.dims[3].extent);
  bool alike = kv.rank == 4 && kv.dims[3] == Dim{"latent_head", own};
  for (int d = 0; alike && d < 3; ++d) alike = kv.dims[d] == q.dims[d];
  require(alike, op,
          " takes [batch, seq, heads, latent_head] with the channels of a key that do not turn, and its "
          "value's");
  require(shared.rank == 3 && shared.dims[0] == q.dims[0] && shared.dims[1] == q.dims[1] &&
              shared.dims[2] == Dim{"turned", s.integer("turned")},
          op, " takes [batch, seq, turned] of all heads together");
}

// Sets the shapes of queries, keys and values as attention takes them.
template <class Op>
void set_heads(const RuleOf<Op>& s) {
  const OperandShape from = s["x"];
  const Dim queries[] = {from.dims[0], from.dims[1], from.dims[2], {"queries", 1}, from.dims[3]};
  s.output("q", from.dtype, queries, 5);
  s.output("k", from.dtype, from.dims, 4);
  s.output("v", from.dtype, from.dims, 4);
  s.whole("x", 3, 4);
  s.whole("kv", 3, 4);
  s.whole("shared", 2, 3);
  s.whole(Name("queries"));
}

// Sets y to x [batch, seq, heads, queries, from] with the channels of `to`.
template <class Op>
void set_width(const RuleOf<Op>& s, const Dim& from, const Dim& to) {
  const OperandShape& x = s["x"];
  require(s.integer("values") > 0 && s.integer("values") <= s.integer("head_dim"), Op::kind,
          " takes `values` of `head_dim` channels");
  require(x.rank == 5 && x.dims[4] == from, Op::kind,
          " takes [batch, seq, heads, queries, channels] of the width it is told");
  s.like("y", "x");
  s["y"].dims[4] = to;
  s.whole("x", 4, 5);
  s.whole("y", 4, 5);
  s.pass_partial({"x"});
}

}  // namespace

void LatentHeads::rule(RuleOf<LatentHeads> s) {
  check_latent(s);
  set_heads(s);
  check_positions(s, s.at("x"), s.at("positions"), kind);
}

void LatentHeads::gradient(GradientOf<LatentHeads> g) {
  turn_back<LatentHeadsGrad>(g, {"x", "kv", "shared"},
                             {{"dq", g.arrived("q")}, {"dk", g.arrived("k")}, {"dv", g.arrived("v")}},
                             "turned", "values", "interleaved");
}

void LatentHeadsAt::rule(RuleOf<LatentHeadsAt> s) {
  check_latent(s);
  require_position(s["x"], s["position"], kind);
  set_heads(s);
}

void LatentHeadsGrad::rule(RuleOf<LatentHeadsGrad> s) {
  check_apart(s, kind, {s.at("dq"), s.at("dk"), s.at("dv")});
  const OperandShape q = s["dq"];
  require(q.dims[3].extent == 1 && q.dims[4].name == Name("head_dim"), kind,
          " takes [batch, seq, heads, 1, head_dim]");
  check_widths(s, q.dims[4].extent);
  const Dim own = {"latent_head", own_channels(s, q.dims[4].extent)},
            turned = {"turned", s.integer("turned")};
  const Dim x[] = {q.dims[0], q.dims[1], q.dims[2], q.dims[4]}, kv[] = {q.dims[0], q.dims[1], q.dims[2], own},
            shared[] = {q.dims[0], q.dims[1], turned};
  s.output("dx", q.dtype, x, 4);
  s.output("dkv", q.dtype, kv, 4);
  s.output("dshared", q.dtype, shared, 3);
  s.whole("dq", 3, 5);
  s.whole(own.name);
  s.whole(turned.name);
  s.sum("dq", 2, 3);
  check_positions(s, s.at("dq"), s.at("positions"), kind);
}

void SplitLatent::rule(RuleOf<SplitLatent> s) {
  const OperandShape x = s["x"];
  const std::int64_t turned = s.integer("turned");
  require(x.rank == 3 && x.dims[2].name == Name("latents") && turned > 0 && turned < x.dims[2].extent, kind,
          " takes [batch, seq, latents] of more channels than `turned`");
  const Dim latent[] = {x.dims[0], x.dims[1], {"latent", x.dims[2].extent - turned}},
            shared[] = {x.dims[0], x.dims[1], {"turned", turned}};
  s.output("latent", x.dtype, latent, 3);
  s.output("shared", x.dtype, shared, 3);
  for (const char* name : {"latents", "latent", "turned"}) s.whole(Name(name));
  s.pass_partial({"x"});
}

void SplitLatent::gradient(GradientOf<SplitLatent> g) {
  input_gradient<JoinLatent>(g, {"x"}, {{"latent", g.arrived("latent")}, {"shared", g.arrived("shared")}});
}

void JoinLatent::rule(RuleOf<JoinLatent> s) {
  const OperandShape &latent = s["latent"], &shared = s["shared"];
  require(latent.rank == 3 && shared.rank == 3 && latent.dims[0] == shared.dims[0] &&
              latent.dims[1] == shared.dims[1],
          kind, " takes [batch, seq, latent] and [batch, seq, turned]");
  const Dim x[] = {
      latent.dims[0], latent.dims[1], {"latents", latent.dims[2].extent + shared.dims[2].extent}};
  s.whole("latent", 2, 3);
  s.whole("shared", 2, 3);
  s.output("x", latent.dtype, x, 3);
  s.whole(x[2].name);
  s.pass_partial({"latent", "shared"});
}

void NarrowHeads::rule(RuleOf<NarrowHeads> s) {
  set_width(s, {"head_dim", s.integer("head_dim")}, {"value_dim", s.integer("values")});
}

void NarrowHeads::gradient(GradientOf<NarrowHeads> g) {
  input_gradient<WidenHeads>(g, {"x"}, {{"x", g.arrived("y")}},
                             {{"values", g.attr("values")}, {"head_dim", g.attr("head_dim")}});
}

void WidenHeads::rule(RuleOf<WidenHeads> s) {
  set_width(s, {"value_dim", s.integer("values")}, {"head_dim", s.integer("head_dim")});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> latent_ops() {
  using namespace ops;
  return {op_def<LatentHeads>(), op_def<LatentHeadsAt>(), op_def<LatentHeadsGrad>(), op_def<SplitLatent>(),
          op_def<JoinLatent>(),  op_def<NarrowHeads>(),   op_def<WidenHeads>()};
}

}  // namespace prun
