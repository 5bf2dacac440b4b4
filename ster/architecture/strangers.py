"""Models that people give in place of a decoder, told apart by their config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of model that has no stream to be read from left to right.

    Args:
        what: What it is, and why that does not do.
        families: Its model types.
        heads: How the names of its architectures end.
    """

    what: str
    families: frozenset[str]
    heads: tuple[str, ...] = ()


_USE_DECODER = "use a causal language model, one that writes from left to right"
KINDS = (
    Kind(
        what="it is an encoder: each token sees those after it too and none is written "
        f"next; {_USE_DECODER}",
        families=frozenset(
            [
                "albert",
                "bert",
                "bert-generation",
                "big_bird",
                "camembert",
                "canine",
                "convbert",
                "deberta",
                "deberta-v2",
                "distilbert",
                "electra",
                "ernie",
                "ernie_m",
                "esm",
                "eurobert",
                "flaubert",
                "fnet",
                "funnel",
                "gte",
                "herbert",
                "ibert",
                "jina_embeddings_v3",
                "layoutlm",
                "layoutlmv2",
                "layoutlmv3",
                "longformer",
                "luke",
                "megatron-bert",
                "mobilebert",
                "modernbert",
                "mpnet",
                "mra",
                "neobert",
                "new",
                "nezha",
                "nomic_bert",
                "nystromformer",
                "qdqbert",
                "rembert",
                "roberta",
                "roberta-prelayernorm",
                "roc_bert",
                "roformer",
                "splinter",
                "squeezebert",
                "tapas",
                "xlm",
                "xlm-roberta",
                "xlm-roberta-xl",
                "xmod",
                "yoso",
            ]
        ),
        heads=("ForMaskedLM",),
    ),
    Kind(
        what="it is an encoder-decoder, whose answer is written by a second stack of "
        f"layers that reads the first; {_USE_DECODER}",
        families=frozenset(
            [
                "bart",
                "bigbird_pegasus",
                "blenderbot",
                "blenderbot-small",
                "encoder-decoder",
                "fsmt",
                "led",
                "longt5",
                "m2m_100",
                "marian",
                "mbart",
                "mt5",
                "mvp",
                "nllb-moe",
                "pegasus",
                "pegasus_x",
                "plbart",
                "prophetnet",
                "switch_transformers",
                "t5",
                "t5gemma",
                "t5gemma2",
                "umt5",
                "xlm-prophetnet",
            ]
        ),
    ),
    Kind(
        what=f"it is a model of speech or sound; {_USE_DECODER}",
        families=frozenset(
            [
                "audio-spectrogram-transformer",
                "bark",
                "clap",
                "encodec",
                "hubert",
                "moonshine",
                "musicgen",
                "parakeet",
                "sew",
                "speech_to_text",
                "speecht5",
                "unispeech",
                "vits",
                "wav2vec2",
                "wav2vec2-bert",
                "wavlm",
                "whisper",
            ]
        ),
        heads=("ForCTC", "ForSpeechSeq2Seq", "ForAudioClassification"),
    ),
    Kind(
        what=f"it is a model of pictures, not of text; {_USE_DECODER}",
        families=frozenset(
            [
                "beit",
                "blip",
                "clip",
                "clip_vision_model",
                "clipseg",
                "convnext",
                "convnextv2",
                "deit",
                "depth_anything",
                "detr",
                "dinov2",
                "dinov3_vit",
                "dpt",
                "mask2former",
                "mobilenet_v2",
                "mobilevit",
                "owlv2",
                "owlvit",
                "regnet",
                "resnet",
                "rt_detr",
                "sam",
                "sam2",
                "segformer",
                "siglip",
                "siglip2",
                "siglip_vision_model",
                "swin",
                "swinv2",
                "table-transformer",
                "vit",
                "vit_mae",
                "vit_msn",
                "vitpose",
                "yolos",
            ]
        ),
        heads=("ForImageClassification", "ForObjectDetection", "VisionModel"),
    ),
    Kind(
        what="it is a diffusion model, which fills in all tokens or pixels at once; "
        f"{_USE_DECODER}",
        families=frozenset(
            [
                "Dream",
                "LLaDA2",
                "diffusion_gemma",
                "dream",
                "llada",
                "llada2_moe",
                "sdar",
            ]
        ),
    ),
)


def explain_stranger(document: Mapping[str, object]) -> list[str]:
    """Say what a model is that cannot be read at all; nothing where it may be read."""
    if "_diffusers_version" in document or "_class_name" in document:
        return [KINDS[-1].what]
    family, heads = document.get("model_type"), document.get("architectures")
    names = (
        [each for each in heads if isinstance(each, str)]
        if isinstance(heads, list)
        else []
    )
    for kind in KINDS:
        if str(family) in kind.families or any(
            name.endswith(kind.heads) for name in names
        ):
            return [kind.what]
    if document.get("is_encoder_decoder") is True:
        return [KINDS[1].what]
    return []
