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

  static void read_config(const Options& config, ConfigWriter& options) {
    expect_text(config, "hidden_act", {"gelu_new"});  // anything else is refused by name
    options.set("vocab", config.integer("vocab_size"));
    options.set("hidden", config.integer("hidden_size"));
  }

  void write_config(const ModelContext&, ConfigWriter& config) const override {
    config.set("model_type", "bigram");
    config.set("hidden_act", "gelu_new");
    config.set("vocab_size", vocab_.extent);
    config.set("hidden_size", hidden_.extent);
  }

  ForeignWeights foreign_weights() const override {
    return {{"model.", ""},  // names may begin with either
            {{"embedding.token", "model.embed.weight"},
             {"head.up", "model.up.weight", "hidden, ffn"},  // it has inputs first
             {"head.down", "model.down.weight"},
             {"head.weight", "lm_head.weight"}},
            {"*.inv_freq"}};  // may be there, and says nothing
  }

 private:
  Dim vocab_, hidden_;
};

}  // namespace

PRUN_PLUGIN(model, Bigram, "bigram", "1.0.0", "Predicts a token from the one before it", "reads=bigram",
            "vocab  | int | 256 | 2..1000000 | Vocabulary size\n"
            "hidden | int | 32  | 1..65536   | Hidden size\n");
