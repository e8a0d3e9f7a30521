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
    throw_error(ErrorCode::unsupported, "cannot generate text with model '", model,
                "': it predicts masked tokens, not the next one");
  if (predicted == "spans" && trait_of(note, "inputs").empty())
    throw_error(ErrorCode::unsupported, "cannot generate text with model '", model,
                "': it has an encoder and no trait inputs, which names the option with its number of tokens");
}

}  // namespace prun
