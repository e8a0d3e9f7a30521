// A model of another shape than the built-in ones: it predicts a token from the one before it, through an
// MLP.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class Bigram final : public Model {
 public:
  explicit Bigram(const Options& options)
      : vocab_{"vocab", options.integer("vocab")}, hidden_{"hidden", options.integer("hidden")} {}

  void build(const ModelContext&, ProgramRef program) override {
    const Segment embedding = program.segment("embedding");
    embedding.outgoing(embedding.op(
        "embedding", {embedding.tokens(), embedding.weight("token", {vocab_, hidden_}, normal(0.05))}));
    const Segment head = program.segment("head");
    const Id x = head.incoming();
    const Dim wide{"ffn", 4 * hidden_.extent};
    const Id up = head.op("linear", {x, head.weight("up", {wide, hidden_}, normal(0.05)), none});
    const Id down =
        head.op("linear", {head.op("gelu", {up}), head.weight("down", {hidden_, wide}, normal(0.05)), none});
    head.op("lm_head", {head.op("add", {x, down}), head.weight("weight", {vocab_, hidden_}, normal(0.05)),
                        head.targets(), head.runtime("inv_targets"), head.runtime("loss_sum")});
  }

 private:
  Dim vocab_, hidden_;
};

}  // namespace

PRUN_PLUGIN(model, Bigram, "bigram", "1.0.0", "Predicts a token from the one before it", "",
            "vocab  | int | 256 | 2..1000000 | Rows of the token table\n"
            "hidden | int | 32  | 1..65536   | Width\n");
