#include "train/assemble/purpose.hpp"

#include "plugin/traits.hpp"

namespace prun {

// Checks that the model can make text: token by token, each from those before it.
void check_makes_text(const Recipe& recipe, PluginHost& plugins, Purpose purpose) {
  if (!makes_text(purpose)) return;
  const std::string& model = recipe.section("model").plugin();
  const PluginNote& note = plugins.note("model", model);
  const std::string_view predicted = trait_of(note, "predicts");
  if (predicted == "masked")
    throw_error(ErrorCode::unsupported, "model '", model,
                "' predicts masked tokens from those on both sides of each, and text is made by models that "
                "predict the next token");
  if (predicted == "spans" && trait_of(note, "inputs").empty())
    throw_error(ErrorCode::unsupported, "model '", model,
                "' has an encoder, and does not say which of its options is how many tokens that sees (trait "
                "inputs); text is made by models that do");
}

}  // namespace prun
