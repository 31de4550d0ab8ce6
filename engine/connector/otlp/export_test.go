package otlp

// RawCodecForTest sends bytes as messages.
type RawCodecForTest = rawCodec
